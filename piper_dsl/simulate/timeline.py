"""What a simulation (or a measurement) says: when every operation starts and ends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..ir.costs import Costs
from ..ir.memory import ACTIVATIONS, live_memory
from ..ir.operations import COMPUTE, TRANSFERS, Kind, Operation
from ..ir.schedule import Schedule
from .bounds import Bounds
from .memory import memory_curve, waiting_outputs
from .moves import Moves, prompt_moves

__all__ = ["MEASURED", "Bubble", "RankReport", "Timeline"]

MEASURED = "measured"
"""The transport of a timeline that was measured."""


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
    """One rank of a timeline. Times are in the unit of the costs, memory in that of their ``memory``.

    ``idle`` is makespan - busy; ``span_idle`` leaves out what lies before ``start`` and after ``end``.
    ``peak_at`` is the first operation that runs while the rank holds ``peak_memory``.
    """

    rank: int
    busy: float
    idle: float
    span_idle: float
    peak_activations: int
    peak_memory: float
    peak_at: Operation | None
    start: float
    end: float


@dataclass(frozen=True, eq=False)
class Timeline:
    """When every operation of a schedule starts and ends; float64 arrays of one entry an operation.

    ``transfer_wait`` is what the order of transfers alone adds to the makespan, against transfers that
    never wait. ``planned`` has the messages where a plan says when they go.
    """

    schedule: Schedule
    start: np.ndarray
    end: np.ndarray
    bounds: Bounds
    transport: str
    transfer_wait: float
    costs: Costs
    planned: Moves | None = None

    @property
    def measured(self) -> bool:
        """Whether the times were measured, and are in seconds."""
        return self.transport == MEASURED

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
        held = self.memory[schedule.offsets[rank] : schedule.offsets[rank + 1]]
        return RankReport(
            rank=rank,
            busy=busy,
            idle=self.makespan - busy,
            span_idle=end - start - busy,
            peak_activations=self.peak_activations[rank],
            peak_memory=self.peak_memory[rank],
            peak_at=schedule.operation(int(schedule.offsets[rank]) + int(held.argmax())) if len(held) else None,
            start=start,
            end=end,
        )

    @cached_property
    def bubble(self) -> Bubble:
        busy = sum(rank.busy for rank in self.ranks)
        span = max(rank.end - rank.start for rank in self.ranks)
        return Bubble(_lost(busy, len(self.ranks) * self.makespan), _lost(busy, len(self.ranks) * span))

    @cached_property
    def peak_activations(self) -> tuple[int, ...]:
        """Per rank, the most activations that are live at a time, each to the end of its B or W."""
        return tuple(int(peak) for peak in self._most(live_memory(self.schedule, ACTIVATIONS)))

    @cached_property
    def moves(self) -> Moves:
        """When every message between ranks leaves and arrives."""
        return self.planned or prompt_moves(self.schedule, self.end, self.costs)

    @cached_property
    def memory(self) -> np.ndarray:
        """What is live on its rank while each operation runs, in the unit of ``costs.memory``; float64.

        As :func:`piper_dsl.ir.memory.live_memory` says, and the outputs that wait for their SEND to end.
        """
        live = live_memory(self.schedule, self.costs.memory)
        if not self._holds_outputs:
            return live
        waiting = waiting_outputs(self.schedule, self.start, self.end, self.moves, self.costs.memory)
        return np.asarray(live + waiting)

    @cached_property
    def peak_memory(self) -> tuple[float, ...]:
        """Per rank, the most that is live at a time, in the unit of ``costs.memory``."""
        standing = self.costs.memory.standing(self.schedule).tolist()
        return tuple(max(pair) for pair in zip(self._most(self.memory), standing, strict=True))

    def memory_curve(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """What a rank holds over time: from ``times[k]`` on it holds ``held[k]``; float64 arrays of one length."""
        moves = self.moves if self._holds_outputs else None
        return memory_curve(self.schedule, rank, self.start, self.end, moves, self.costs.memory)

    @property
    def _holds_outputs(self) -> bool:
        return bool(np.any(self.costs.memory.of("output", self.schedule.stages)))

    def _most(self, held: np.ndarray) -> tuple[float, ...]:
        return tuple(float(row.max(initial=0)) for row in np.split(held, self.schedule.offsets[1:-1]))

    @cached_property
    def limiting_stage(self) -> int | None:
        """The stage whose operations take the longest in all, the first of several; None if all take the same."""
        schedule = self.schedule
        work = np.bincount(schedule.stage, self.costs.single(schedule), schedule.stages)
        return int(work.argmax()) if len(work) and not np.allclose(work, work[0], atol=0.0) else None

    @cached_property
    def critical_path(self) -> tuple[Operation, ...]:
        """A chain of operations that decides the makespan, each waiting for the one before.

        Backwards from the last to end: the latest to arrive of what an operation needs and of what its
        rank ran before; of several, a need.
        """
        return tuple(self.schedule.operation(index) for index in self.critical_indices)

    @cached_property
    def critical_indices(self) -> tuple[int, ...]:
        """The same by their indices in the schedule."""
        if not len(self.end):
            return ()
        path = [int(np.argmax(self.end == self.makespan))]
        while self.start[path[-1]] > 0.0 and (cause := int(self.causes[path[-1]])) >= 0:
            path.append(cause)
        return tuple(reversed(path))

    @cached_property
    def causes(self) -> np.ndarray:
        """What every operation waited for, by index; int64, -1 for the first of a rank that needs nothing."""
        schedule, needs = self.schedule, self.schedule.needs
        needing = np.repeat(np.arange(len(schedule)), np.diff(needs.offsets))
        far = (schedule.rank[needing] != schedule.rank[needs.sources]) & np.isin(schedule.kind[needing], COMPUTE)
        output = schedule.stage[np.where(schedule.kind[needing] == Kind.F, needs.sources, needing)]
        delay = np.where(far, self.costs.transfer_times(schedule)[output], 0.0)
        first = schedule.slots.first[:-1]
        behind = np.flatnonzero(np.diff(schedule.rank[first], prepend=-1) == 0)
        source = np.concatenate([first[behind] - 1, needs.sources])
        waiting = np.concatenate([behind, schedule.slot[needing]])
        is_need = np.arange(len(source)) >= len(behind)
        arrival = self.end[source] + np.concatenate([np.zeros(len(behind)), delay])
        order = np.lexsort((source, is_need, arrival, waiting))
        latest = np.full(len(first), -1, dtype=np.int64)
        latest[waiting[order]] = source[order]  # the last of a slot stays
        causes: np.ndarray = latest[schedule.slot]
        return causes


def _lost(busy: float, available: float) -> float:
    return max(0.0, 1.0 - busy / available) if available > 0 else 0.0
