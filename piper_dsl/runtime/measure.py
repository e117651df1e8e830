"""A step as it ran, and what is to be learnt from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..ir.operations import Kind
from ..simulate import Costs
from .report import RankReport, Timed

__all__ = ["StepReport", "measured_costs"]


@dataclass(frozen=True)
class StepReport:
    """One step as it ran: what every rank said of it, and ``seconds`` as the driver saw them."""

    ranks: tuple[RankReport, ...]
    seconds: float
    reduction: str = "mean"

    @cached_property
    def losses(self) -> Mapping[tuple[int, int], float]:
        """By (stage, microbatch), of the stages that have a loss."""
        return {key: loss for rank in self.ranks for key, loss in rank.losses.items()}

    @cached_property
    def operations(self) -> tuple[tuple[Timed, ...], ...]:
        """Per rank, in the order of its row. An OPT has the times of its optimizer, which runs at the end."""
        return tuple(rank.timed() for rank in self.ranks)

    @property
    def loss(self) -> float:
        """The mean or sum over microbatches, as the loss is one, summed over the stages that have a loss."""
        stages = {stage for stage, _ in self.losses}
        reduce = np.mean if self.reduction == "mean" else np.sum
        return sum(float(reduce([x for (s, _), x in self.losses.items() if s == stage])) for stage in stages)

    @property
    def gradient_norm(self) -> float | None:
        """The norm of the gradients of all ranks before they were clipped; None where they were not."""
        return next((rank.norm for rank in self.ranks if rank.norm is not None), None)

    @property
    def makespan(self) -> float:
        """Seconds from the start of the first operation to the end of the last, over all ranks."""
        times = np.concatenate([rank.times for rank in self.ranks])
        return float(times.max() - times.min())


def measured_costs(reports: Sequence[StepReport], stages: int) -> Costs:
    """The median duration of every kind on every stage, in seconds, for :func:`piper_dsl.simulate`."""
    spent: dict[Kind, list[list[float]]] = {}
    for timed in (one for report in reports for row in report.operations for one in row):
        by_stage = spent.setdefault(timed.operation.kind, [[] for _ in range(stages)])
        by_stage[timed.operation.stage].append(timed.end - timed.start)
    medians: dict[str, Any] = {
        kind.name: [float(np.median(x)) if x else 0.0 for x in rows] for kind, rows in spent.items()
    }
    return Costs(latency=0.0, **medians)
