"""What the optimizers of one rank do at the end of a step, once every rank is known to be well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from .optimizer import StageOptimizer, clip_coefficient
from .shared import SharedGroup
from .spec import RankSpec
from .stage import Stage
from .sums import FlatGradients, SharedSums

__all__ = ["Updates"]


class Updates:
    """The optimizers of a rank's stages, and the gradients that it shares with other ranks.

    In order: :meth:`begin`, operations, :meth:`keep` or :meth:`drop`; then :meth:`share`, the norm where
    :attr:`clips`, and :meth:`step` for every stage that is :meth:`due`.
    """

    def __init__(self, spec: RankSpec, stages: Mapping[int, Stage]) -> None:
        self.norm: float | None = None
        self._stages = stages
        self._max_norm = spec.max_norm
        self._steps = spec.steps
        own = self._own_parameters()
        self._optimizers = {s: StageOptimizer(p, spec.optimizer, spec.scheduler) for s, p in own.items()}
        self._owners = {id(p): optimizer for optimizer in self._optimizers.values() for p in optimizer.parameters}
        self.sums = SharedSums({group.number: (group, FlatGradients(self._members(group))) for group in spec.shared})
        elsewhere = [group for group in spec.shared if group.ranks[0] != spec.rank]
        self._counted_elsewhere = {id(p) for group in elsewhere for p in self._members(group)}
        self._due: dict[int, int] = {}
        self._updates = True
        self._scale = 1.0

    def _own_parameters(self) -> dict[int, list[nn.Parameter]]:
        """By stage; what two stages of this rank share belongs to the first, or it would be stepped twice."""
        seen: set[int] = set()
        own = {}
        for stage, runner in self._stages.items():
            own[stage] = [p for p in runner.parameters if id(p) not in seen]
            seen |= {id(p) for p in own[stage]}
        return own

    def _members(self, group: SharedGroup) -> list[nn.Parameter]:
        parameters = {s: dict(stage.module.named_parameters()) for s, stage in self._stages.items()}
        return [parameters[stage][name] for stage, name in group.members]

    def begin(self, updates: bool) -> None:
        """Starts a step; one that does not ``updates`` ends without stepping any optimizer."""
        self._updates = updates
        self._due.clear()
        self.norm = None
        for optimizer in self._optimizers.values():
            optimizer.begin()

    def note(self, stage: int, entry: int) -> None:
        """A stage met its OPT, which is an ``entry`` of the log."""
        self._due[stage] = entry

    def reduce(self, stage: int) -> None:
        """REDUCE_GRAD: starts to sum the gradients of a stage over its copies, if this step needs them."""
        if self.steps:
            self.sums.start(stage, self._gradient)

    def _gradient(self, parameter: nn.Parameter) -> torch.Tensor | None:
        return self._owners[id(parameter)].gradient(parameter)

    def keep(self) -> None:
        """All ranks ran the step to its end: its gradients count, and what is not yet being summed is."""
        for optimizer in self._optimizers.values():
            optimizer.keep()
        if self.steps:
            self.sums.start(None, self._gradient)

    def share(self) -> None:
        """Waits for the sums of gradients that other ranks have a part in. All ranks have called :meth:`keep`."""
        self.sums.take()

    def drop(self) -> None:
        """They did not, or it was no training: its gradients are forgotten."""
        for optimizer in self._optimizers.values():
            optimizer.drop()
        self.sums.drop()

    @property
    def steps(self) -> bool:
        """Whether optimizers step at the end of this step: then they do so on all ranks."""
        return self._updates and self._steps

    @property
    def clips(self) -> bool:
        """Whether the norm of the gradients is asked for before that."""
        return self.steps and self._max_norm is not None

    def squared_norm(self) -> float:
        """The squared norm of the gradients of this rank; what other ranks hold too counts on the first."""
        return sum(optimizer.squared_norm(self._counted_elsewhere) for optimizer in self._optimizers.values())

    def due(self, squared_norm: float | None) -> Iterator[tuple[int, int]]:
        """The stages to step, with their entries of the log; ``squared_norm`` is that of all ranks together."""
        self.norm, self._scale = None, 1.0
        if squared_norm is not None and self._max_norm is not None:
            self.norm = squared_norm**0.5
            self._scale = clip_coefficient(self.norm, self._max_norm)
        yield from self._due.items() if self.steps else ()

    def step(self, stage: int) -> None:
        """Steps the optimizer of a stage."""
        self._optimizers[stage].step(self._scale)

    def state(self, stage: int) -> dict[str, Any]:
        """Everything that the next steps of a stage depend on, its module apart."""
        return self._optimizers[stage].state()

    def differences(self, stage: int, state: Mapping[str, Any]) -> Iterator[str]:
        """What keeps a state from being taken up."""
        return self._optimizers[stage].differences(state)

    def restore(self, stage: int, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`state` gave."""
        self._optimizers[stage].restore(state)
