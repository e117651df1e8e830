"""A step as it ran, and what is to be learnt from it: a timeline like a predicted one, and costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..ir.clock import run_schedule
from ..ir.costs import Costs
from ..ir.operations import TRANSFERS, Kind
from ..ir.schedule import Schedule
from ..plan.transfers import find_transfers
from ..simulate.measured import measured_timeline
from ..simulate.timeline import Timeline
from .report import RankReport, Timed

__all__ = ["StepReport", "measured_costs"]


@dataclass(frozen=True)
class StepReport:
    """One step of a schedule as it ran: what every rank said of it, and ``seconds`` as the driver saw them.

    Times are those of the CPU, from the start of an operation to its end, on a clock that all processes of
    one machine share.
    """

    schedule: Schedule
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

    @cached_property
    def times(self) -> np.ndarray:
        """Start and end of every operation of the schedule in seconds from the first start; float64, (operations, 2).

        A transfer that the schedule writes has the time at which its rank came to it.
        """
        schedule = self.schedule
        times = np.full((len(schedule), 2), np.nan)
        times[~np.isin(schedule.kind, TRANSFERS)] = np.concatenate([rank.times for rank in self.ranks])
        times -= np.nanmin(times)
        for index in np.flatnonzero(np.isin(schedule.kind, TRANSFERS)):
            first = index == schedule.offsets[schedule.rank[index]]
            times[index] = 0.0 if first else times[index - 1, 1]
        return times

    @property
    def makespan(self) -> float:
        """Seconds from the start of the first operation to the end of the last, over all ranks."""
        return float(self.times.max())

    def replayed(self) -> float:
        """The makespan, in seconds, if every operation took what it took and nothing else took any time."""
        schedule = self.schedule
        spent = self.times[:, 1] - self.times[:, 0]
        durations = np.add.reduceat(spent, schedule.slots.first[:-1])
        start = run_schedule(schedule, durations, Costs().delays(schedule)).start
        return float((start + durations).max())

    @cached_property
    def timeline(self) -> Timeline:
        """The step as a timeline, in seconds; it draws and reports like a predicted one.

        The halves of an overlapped slot, which run one after the other, span it together.
        """
        start, end = self.times.T
        return measured_timeline(self.schedule, start, end, measured_costs([self]), end - start)


def measured_costs(reports: Sequence[StepReport]) -> Costs:
    """Costs in seconds, as measured, for :func:`piper_dsl.simulate`, from steps of one schedule.

    Each is a mean within a step, as a makespan is a sum of durations, and the median of these over the steps, as
    one that was disturbed is not to count. The duration of every kind on every stage; as overhead, what passes on a
    rank between an operation and the next that has all it needs; as latency, what passes beyond that until a result
    reaches a rank that waits for it.
    """
    schedule = reports[0].schedule
    spent = np.stack([report.times[:, 1] - report.times[:, 0] for report in reports])
    kinds: dict[str, Any] = {}
    for kind in (Kind(int(number)) for number in np.unique(schedule.kind) if number not in TRANSFERS):
        by_stage = [spent[:, (schedule.kind == kind) & (schedule.stage == s)] for s in range(schedule.stages)]
        kinds[kind.name] = [_typical(steps) for steps in by_stage]
    gaps = [_gaps(report) for report in reports]
    overhead = _typical([ready for ready, _ in gaps])
    latency = _typical([waited for _, waited in gaps]) - overhead
    return Costs(latency=max(0.0, latency), overhead=overhead, **kinds)


def _gaps(report: StepReport) -> tuple[np.ndarray, np.ndarray]:
    """Seconds before operations that waited for nothing, and those from a result to a rank that waited for it."""
    schedule, start, end = report.schedule, report.times[:, 0], report.times[:, 1]
    transfers = find_transfers(schedule)
    free = np.concatenate([[0.0], end[:-1]])
    arrived = np.full(len(schedule), -np.inf)
    np.maximum.at(arrived, transfers.consumer, end[transfers.producer])
    counts = ~np.isin(schedule.kind, (*TRANSFERS, Kind.OPT))
    counts[schedule.offsets[:-1][np.diff(schedule.offsets) > 0]] = False
    ready = counts & (arrived == -np.inf)
    waited = counts & (arrived > free)
    return (start - free)[ready], (start - arrived)[waited]


def _typical(steps: Iterable[np.ndarray]) -> float:
    """The median of the means of steps; 0 where none has any values."""
    means = [values.mean() for values in steps if values.size]
    return max(0.0, float(np.median(means))) if means else 0.0
