"""The transfers of a schedule: every need between ranks is one message."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..ir.needs import positions
from ..ir.operations import Kind, Operation
from ..ir.schedule import Schedule

__all__ = ["Transfers", "find_transfers"]


@dataclass(frozen=True, eq=False)
class Transfers:
    """Messages as arrays of one entry each (int64).

    ``producer`` and ``consumer`` are operations of ``schedule`` by index; ``source`` and ``target`` are
    the stages at the ends; ``forward`` tells activations from gradients.
    """

    schedule: Schedule
    producer: np.ndarray
    consumer: np.ndarray
    source: np.ndarray
    target: np.ndarray
    microbatch: np.ndarray
    forward: np.ndarray

    def __len__(self) -> int:
        return len(self.producer)

    @cached_property
    def sender(self) -> np.ndarray:
        """The rank that sends."""
        return np.asarray(self.schedule.rank[self.producer], dtype=np.int64)

    @cached_property
    def receiver(self) -> np.ndarray:
        """The rank that receives."""
        return np.asarray(self.schedule.rank[self.consumer], dtype=np.int64)

    def send(self, index: int) -> Operation:
        """The SEND of a transfer as an operation."""
        kind = Kind.SEND_F if self.forward[index] else Kind.SEND_B
        return Operation(kind, int(self.source[index]), int(self.microbatch[index]))

    def receive(self, index: int) -> Operation:
        """The RECV of a transfer as an operation."""
        kind = Kind.RECV_F if self.forward[index] else Kind.RECV_B
        return Operation(kind, int(self.target[index]), int(self.microbatch[index]))


def find_transfers(schedule: Schedule) -> Transfers:
    """Every message of a complete schedule: along each edge of the stage graph, forth and back."""
    at = positions(schedule)
    gradient = np.where(at[Kind.I] >= 0, at[Kind.I], at[Kind.B])
    columns: list[tuple[np.ndarray, ...]] = []
    for source, target in schedule.graph.edges:
        columns.append(_along(schedule, at[Kind.F], source, target, True))
        columns.append(_along(schedule, gradient, target, source, False))
    if not columns:
        columns.append(tuple(np.zeros(0, dtype=np.int64) for _ in range(6)))
    producer, consumer, sources, targets, microbatch, forward = map(np.concatenate, zip(*columns, strict=True))
    return Transfers(schedule, producer, consumer, sources, targets, microbatch, forward.astype(bool))


def _along(schedule: Schedule, at: np.ndarray, source: int, target: int, forward: bool) -> tuple[np.ndarray, ...]:
    rank_of = schedule.placement.rank_of
    there = (rank_of[source] != rank_of[target]) & (at[source] >= 0) & (at[target] >= 0)
    microbatch = np.flatnonzero(there)
    size = len(microbatch)
    ends = (at[source][microbatch], at[target][microbatch])
    return (*ends, np.full(size, source), np.full(size, target), microbatch, np.full(size, int(forward)))
