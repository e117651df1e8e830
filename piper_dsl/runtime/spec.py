"""What is sent to a rank: once, all it needs to run; with every step, its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..ir.graph import StageGraph
from ..ir.placement import Placement
from .optimizer import OptimizerFactory, SchedulerFactory
from .shared import SharedGroup
from .stacked import stacked, unstacked
from .stage import LossFunction

__all__ = ["Batch", "Drawn", "RankSpec"]

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, eq=False)
class RankSpec:
    """All that a rank needs to know to run; sent to where it runs once.

    ``modules`` maps the rank's stages to their modules; ``recomputed`` are the (stage, microbatch) that
    have an R. ``steps`` tells whether the schedule steps optimizers, on whatever rank. ``scale`` multiplies
    every loss. Gradients are clipped to ``max_norm``, the norm over all ranks. ``seed`` is that of the stages'
    random numbers; ``autocast`` the data type that their forwards compute in where they can; ``shared`` are
    parameters that other ranks hold too, in any of the ``replicas``; ``device`` is where the rank computes.
    ``loader`` makes the batches that a rank with data draws by itself.
    """

    rank: int
    graph: StageGraph
    placement: Placement
    modules: Mapping[int, nn.Module]
    trained: bool
    recomputed: frozenset[tuple[int, int]]
    steps: bool
    loss_fn: LossFunction | None
    optimizer: OptimizerFactory | None
    scheduler: SchedulerFactory | None = None
    max_norm: float | None = None
    scale: float = 1.0
    seed: int = 0
    autocast: torch.dtype | None = None
    shared: Sequence[SharedGroup] = ()
    replicas: int = 1
    device: str = "cpu"
    loader: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Drawn:
    """Of the data that a rank is to draw: a ``step`` that the driver has drawn, the ``digest`` of what this rank has
    of that, and the ``signature`` of every step: names, stages, shapes and data types of all ranks.
    """

    step: int
    digest: str
    signature: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Batch:
    """One step's data for one rank, by (stage, microbatch): inputs of first, targets of last stages.

    A step that is not ``training`` runs forwards only, and leaves no trace; one that does not ``update`` only
    adds to the gradients. Where it is to be ``drawn``, the rank has a loader for its data.
    """

    step: int
    inputs: Mapping[tuple[int, int], Tensors] = field(default_factory=dict)
    targets: Mapping[tuple[int, int], Tensors] = field(default_factory=dict)
    training: bool = True
    updates: bool = True
    drawn: Drawn | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as bytes of its microbatches alone: a tensor that is a part of another would bring all of it."""
        data = (stacked(self.inputs), stacked(self.targets))
        return _unpacked, (self.step, *data, self.training, self.updates, self.drawn)


def _unpacked(step: int, inputs: Any, targets: Any, training: bool, updates: bool, drawn: Drawn | None) -> Batch:
    return Batch(step, unstacked(inputs), unstacked(targets), training, updates, drawn)
