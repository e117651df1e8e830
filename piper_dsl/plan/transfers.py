"""The transfers of a schedule: every need between ranks is one message."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..ir.costs import Costs
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

    def times(self, costs: Costs) -> np.ndarray:
        """How long every message takes; float64."""
        output = np.where(self.forward, self.source, self.target)
        return np.asarray(costs.transfer_times(self.schedule)[output])

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
    at = schedule.positions
    forward, gradient = at[Kind.F], np.where(at[Kind.I] >= 0, at[Kind.I], at[Kind.B])
    edges = np.array(schedule.graph.edges, dtype=np.int64).reshape(-1, 2)
    # By edge, direction (forth, back) and microbatch; activations go from source to target, gradients back.
    ends = np.stack([edges, edges[:, ::-1]], axis=1)
    producer = np.stack([forward[edges[:, 0]], gradient[edges[:, 1]]], axis=1)
    consumer = np.stack([forward[edges[:, 1]], gradient[edges[:, 0]]], axis=1)
    rank_of = schedule.placement.rank_of
    between = (rank_of[edges[:, 0]] != rank_of[edges[:, 1]])[:, None, :]
    there = between & (producer >= 0) & (consumer >= 0)
    edge, direction, microbatch = np.nonzero(there)
    source, target = ends[edge, direction].T
    return Transfers(schedule, producer[there], consumer[there], source, target, microbatch, direction == 0)
