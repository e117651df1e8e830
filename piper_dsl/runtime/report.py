"""What a rank says of a step: its losses, and what it ran when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..ir.operations import Kind, Operation
from .clock import Clock
from .failure import OperationFailed

__all__ = ["RankReport", "StepLog", "StepOutcome", "Timed", "in_turn"]


@dataclass(frozen=True)
class Timed:
    """An operation as it ran: seconds of a clock that all processes of the machine share."""

    operation: Operation
    start: float
    end: float


@dataclass(frozen=True, eq=False)
class RankReport:
    """One step of one rank.

    ``losses`` by (stage, microbatch), of the stages that have a loss. ``operations`` (int32) has kind,
    stage and microbatch (-1: none) of what ran, in order, and ``times`` (float64, seconds) its start and
    end: arrays, which cross process borders faster than values. ``norm`` is that of the gradients of all
    ranks before they were clipped, None where they were not.
    """

    losses: Mapping[tuple[int, int], float]
    operations: np.ndarray
    times: np.ndarray
    norm: float | None = None

    def timed(self) -> tuple[Timed, ...]:
        """What ran when, as values."""
        rows = zip(self.operations.tolist(), self.times.tolist(), strict=True)
        return tuple(
            Timed(Operation(Kind(kind), stage, None if microbatch < 0 else microbatch), start, end)
            for (kind, stage, microbatch), (start, end) in rows
        )


class StepLog:
    """Writes down what runs when, as cheaply as Python can: one tuple an operation. Times are marks of a ``clock``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: list[tuple[int, int, int, Any, Any]] = []

    def clear(self) -> None:
        self._rows.clear()
        self._clock.begin()

    def add(self, operation: Operation, start: Any, end: Any) -> int:
        """Notes an operation between two marks; returns its number, for :meth:`correct`."""
        microbatch = -1 if operation.microbatch is None else operation.microbatch
        self._rows.append((operation.kind, operation.stage, microbatch, start, end))
        return len(self._rows) - 1

    def correct(self, number: int, start: Any) -> None:
        """Replaces the times of an operation by the mark ``start`` and now."""
        self._rows[number] = (*self._rows[number][:3], start, self._clock.mark())

    def report(self, losses: Mapping[tuple[int, int], float], norm: float | None) -> RankReport:
        """All that was noted."""
        operations = np.array([row[:3] for row in self._rows], dtype=np.int32).reshape(-1, 3)
        seconds = self._clock.seconds([mark for row in self._rows for mark in row[3:]])
        times = np.array(seconds, dtype=np.float64).reshape(-1, 2)
        return RankReport(losses, operations, times, norm)


StepOutcome = list[RankReport] | OperationFailed
"""How a step ended: with the report of every rank, or with the operation that raised."""

T = TypeVar("T")


def in_turn(step: Callable[[T], list[RankReport]], steps: Iterable[T]) -> list[StepOutcome]:
    """One step after the other, up to the first that fails."""
    outcomes: list[StepOutcome] = []
    for one in steps:
        try:
            outcomes.append(step(one))
        except OperationFailed as failure:
            return [*outcomes, failure]
    return outcomes
