"""From a model and a schedule to what every rank is sent, and to the target that runs it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from ..diagnostics import PipeError
from ..ir.operations import BACKWARD
from ..ir.schedule import Schedule
from ..lower.program import Code, Program
from .failure import cannot_be_sent
from .optimizer import OptimizerFactory
from .report import StepOutcome
from .resources import Resources
from .settings import Settings
from .shared import shared_groups
from .spec import Batch, RankSpec
from .stage import LossFunction

__all__ = ["Target", "rank_specs", "start_target"]


class Target(Protocol):
    """What executes a Program on ranks; all targets run the same :class:`~.rank.Rank`."""

    name: str

    def run(self, steps: Sequence[Sequence[Batch]]) -> list[StepOutcome]:
        """Makes steps, up to the first in which an operation raises. Raises PipeError where a rank is gone."""

    def state(self) -> list[dict[int, dict[str, Any]]]: ...

    def gradients(self) -> list[dict[int, dict[str, torch.Tensor]]]: ...

    def held(self) -> list[int]: ...

    def save(self, folder: str) -> list[str]: ...

    def restore(self, folder: str) -> None: ...

    def restart(self) -> None: ...

    def close(self) -> None: ...


def rank_specs(
    stages: Sequence[nn.Module],
    schedule: Schedule,
    program: Program,
    loss_fn: LossFunction | None,
    optimizer: OptimizerFactory | None,
    settings: Settings,
    replicas: int = 1,
    loader: Callable[[], Any] | None = None,
) -> list[RankSpec]:
    """What every rank needs to know to run."""
    codes = program.columns[:, 0]
    before, after = schedule.graph.predecessors, schedule.graph.successors
    shared = shared_groups(stages, schedule)
    recomputed = frozenset((s, i) for s, i in program.columns[codes == Code.R, 1:3].tolist())
    trained = bool(np.isin(codes, [int(kind) for kind in BACKWARD]).any())
    return [
        RankSpec(
            rank=rank,
            graph=schedule.graph,
            placement=schedule.placement,
            modules={stage: stages[stage] for stage in owned},
            trained=trained,
            recomputed=recomputed,
            steps=bool(np.any(codes == Code.OPT)),
            loss_fn=loss_fn,
            optimizer=optimizer,
            scheduler=settings.scheduler,
            max_norm=settings.max_norm,
            scale=settings.scale(schedule.microbatches),
            seed=settings.seed,
            autocast=settings.autocast,
            shared=shared[rank],
            replicas=replicas,
            loader=loader if any(not (before[s] and after[s]) for s in owned) else None,
        )
        for rank, owned in enumerate(schedule.placement.owned)
    ]


def start_target(
    target: str,
    schedule: Schedule,
    program: Program,
    specs: list[RankSpec],
    timeout: float | None,
    transport: str,
    resources: Resources,
) -> Target:
    """The target of a name; ``auto`` is what the machine is good for. Ranks of Ray start with the first step.

    Raises PipeError for what cannot be copied to a rank, a rank that cannot be made, and resources that are missing.
    """
    if target == "auto":
        from ..targets.choice import chosen_target

        target = chosen_target(program.ranks)
    if target == "local":
        from ..targets.local import LocalTarget

        # As on any other target, what is trained is a copy; `state_dict` hands it out.
        return LocalTarget(program, [_copied(spec) for spec in specs])
    if target == "ray-program":
        from ..targets.ray_program import RayProgramTarget

        return RayProgramTarget(program, specs, timeout, transport, resources)
    from ..targets.ray_dag import RayDagTarget

    return RayDagTarget(schedule, program, specs, timeout, transport, resources)


def _copied(spec: RankSpec) -> RankSpec:
    try:
        return copy.deepcopy(spec)
    except Exception as error:
        raise PipeError(cannot_be_sent(spec.rank, spec.modules, error)) from error
