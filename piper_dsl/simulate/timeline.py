"""What a simulation (or a measurement) says: when every operation starts and ends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..ir.activations import live_activations
from ..ir.needs import Needs
from ..ir.operations import COMPUTE, TRANSFERS, Operation
from ..ir.schedule import Schedule
from .bounds import Bounds

__all__ = ["Bubble", "RankReport", "Timeline"]


@dataclass(frozen=True)
class Bubble:
    """Two ratios of lost time, both between 0 and 1.

    ``idle`` is 1 - busy / makespan over all ranks. ``span`` is 1 - busy / span, where the span is the
    longest time from the first to the last operation of a rank: what the zero-bubble papers report.
    """

    idle: float
    span: float


@dataclass(frozen=True)
class RankReport:
    """One rank of a timeline. Times are in the unit of the costs, activations in stage activations.

    ``idle`` is makespan - busy; ``span_idle`` leaves out what lies before ``start`` and after ``end``.
    """

    rank: int
    busy: float
    idle: float
    span_idle: float
    peak_activations: int
    start: float
    end: float


@dataclass(frozen=True, eq=False)
class Timeline:
    """When every operation of a schedule starts and ends; float64 arrays of one entry an operation.

    ``transfer_wait`` is what the order of transfers alone adds to the makespan, against transfers that
    never wait. ``latency`` is what passed between the end of an operation and its arrival elsewhere.
    """

    schedule: Schedule
    start: np.ndarray
    end: np.ndarray
    bounds: Bounds
    transport: str
    transfer_wait: float
    latency: float = 0.0

    @cached_property
    def makespan(self) -> float:
        """The end of the last operation; 0 for an empty schedule."""
        return float(self.end.max(initial=0.0))

    @cached_property
    def ranks(self) -> tuple[RankReport, ...]:
        return tuple(self._rank(rank) for rank in range(self.schedule.ranks))

    def _rank(self, rank: int) -> RankReport:
        schedule = self.schedule
        own = np.arange(schedule.offsets[rank], schedule.offsets[rank + 1])
        own = own[~np.isin(schedule.kind[own], TRANSFERS)]
        slots = own[~schedule.joined[own]]
        busy = float((self.end[slots] - self.start[slots]).sum())
        start = float(self.start[own].min(initial=np.inf)) if len(own) else 0.0
        end = float(self.end[own].max(initial=0.0))
        peak = self.peak_activations[rank]
        return RankReport(rank, busy, self.makespan - busy, end - start - busy, peak, start, end)

    @cached_property
    def bubble(self) -> Bubble:
        busy = sum(rank.busy for rank in self.ranks)
        span = max(rank.end - rank.start for rank in self.ranks)
        return Bubble(_lost(busy, len(self.ranks) * self.makespan), _lost(busy, len(self.ranks) * span))

    @cached_property
    def peak_activations(self) -> tuple[int, ...]:
        """Per rank, the most activations that are live at a time, each to the end of its B or W."""
        return tuple(int(peak) for peak in self.peaks())

    def peaks(self, released_at_input: float = 0.0) -> tuple[float, ...]:
        """The same, with a part of every activation, from 0 to 1, released at the end of I already."""
        rows = np.split(live_activations(self.schedule, released_at_input), self.schedule.offsets[1:-1])
        return tuple(float(row.max(initial=0)) for row in rows)

    @cached_property
    def critical_path(self) -> tuple[Operation, ...]:
        """A chain of operations that decides the makespan, each waiting for the one before.

        Backwards from the last to end: the latest to arrive of what an operation needs and of what its
        rank ran before; of several, a need.
        """
        if not len(self.end):
            return ()
        needs = self.schedule.needs
        path = [int(np.argmax(self.end == self.makespan))]
        while self.start[path[-1]] > 0.0 and (cause := self._cause(path[-1], needs)) >= 0:
            path.append(cause)
        return tuple(self.schedule.operation(index) for index in reversed(path))

    def _cause(self, index: int, needs: Needs) -> int:
        """What an operation waited for; -1 for the first of a rank that needs nothing."""
        schedule, slot = self.schedule, int(self.schedule.slot[index])
        first, after = schedule.slots.first[slot : slot + 2].tolist()
        found = [(float(self.end[first - 1]), 0, first - 1)] if first > schedule.offsets[schedule.rank[index]] else []
        for half in range(first, after):
            for source in needs.of(half).tolist():
                far = schedule.rank[source] != schedule.rank[index] and schedule.kind[half] in COMPUTE
                found.append((float(self.end[source]) + (self.latency if far else 0.0), 1, source))
        return max(found)[2] if found else -1


def _lost(busy: float, available: float) -> float:
    return max(0.0, 1.0 - busy / available) if available > 0 else 0.0
