"""The order in which Ray's compiled graphs run the binds of a schedule on accelerator edges.

Ray sorts the graph of all reads, computations and writes topologically (`ray/dag/dag_node_operation.py`, Ray
2.60). Of what is ready it takes messages on accelerators first, then the operation that comes first on its
actor; between actors it takes the one whose task has the lower number, which is its place in a breadth-first
walk from the input of the graph. So a message goes into the order of both its ranks as soon as it has been
computed, however much the receiver could compute before it needs it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

import numpy as np

from ..ir.operations import TRANSFERS
from ..ir.schedule import Schedule
from .tokens import Call, Threaded, thread_tokens
from .transfers import Transfers

__all__ = ["ray_turns"]


def ray_turns(schedule: Schedule, transfers: Transfers) -> list[int]:
    """The slots of a schedule in the order in which Ray places them; each is followed by what it sends."""
    number = _task_numbers(schedule, transfers)
    calls = _rows(schedule)
    waits, readers = _waits(schedule)
    heads = [0] * schedule.ranks
    ready: list[tuple[int, int, int]] = []

    def push(rank: int) -> None:
        """Offers the next call of a rank, if it has what it needs from others."""
        if heads[rank] < len(calls[rank]) and not waits[calls[rank][heads[rank]]]:
            call = calls[rank][heads[rank]]
            heapq.heappush(ready, (heads[rank], number[call], rank))

    for rank in range(schedule.ranks):
        push(rank)
    order: list[int] = []
    rank_of = schedule.rank.tolist()
    while ready:
        _, _, rank = heapq.heappop(ready)
        call = calls[rank][heads[rank]]
        heads[rank] += 1
        order.append(call)
        for reader in readers[call]:
            waits[reader] -= 1
            other = rank_of[reader]
            if not waits[reader] and calls[other][heads[other]] == reader:
                push(other)
        push(rank)
    return _as_slots(schedule, order)


def _rows(schedule: Schedule) -> list[list[int]]:
    """The operations of every rank that become calls, in order."""
    calls = np.flatnonzero(~np.isin(schedule.kind, TRANSFERS))
    return [row.tolist() for row in np.split(calls, np.searchsorted(calls, schedule.offsets[1:-1]))]


def _waits(schedule: Schedule) -> tuple[list[int], list[list[int]]]:
    """How many needs of other ranks every operation has, and who has which as a need."""
    consumer, producer = np.repeat(np.arange(len(schedule)), np.diff(schedule.needs.offsets)), schedule.needs.sources
    between = schedule.rank[consumer] != schedule.rank[producer]
    readers: list[list[int]] = [[] for _ in range(len(schedule))]
    for source, reader in zip(producer[between].tolist(), consumer[between].tolist(), strict=True):
        readers[source].append(reader)
    return np.bincount(consumer[between], minlength=len(schedule)).tolist(), readers


def _as_slots(schedule: Schedule, order: list[int]) -> list[int]:
    """Operations as the slots that hold them, each where the last of its operations stands."""
    slots = schedule.slot[order][::-1]
    _, last = np.unique(slots, return_index=True)
    return [int(slot) for slot in slots[np.sort(last)][::-1]]


# --- the numbers of tasks ------------------------------------------------------------------------


def _task_numbers(schedule: Schedule, transfers: Transfers) -> list[int]:
    """The number that Ray gives to the task of every operation: its place in the walk from the input."""
    graph = _Binds(schedule, transfers)
    number: dict[int, int] = {}
    queue = deque([graph.input])
    while queue:
        node = queue.popleft()
        if node not in number:
            number[node] = len(number)
            queue.extend(other for other in graph.neighbours(node) if other not in number)
    return [number.get(call, -1) for call in range(len(schedule))]


class _Binds:
    """The graph of binds: operations by their numbers, then loads, concludes, the output and the input."""

    def __init__(self, schedule: Schedule, transfers: Transfers) -> None:
        self._count, self._ranks = len(schedule), schedule.ranks
        self._output, self.input = self._count + 2 * self._ranks, self._count + 2 * self._ranks + 1
        calls = list(self._calls(schedule, transfers))
        threaded: Threaded[int] = thread_tokens(calls, self._load, self._ranks)
        self._source = {call.result: source for call, (source,) in zip(calls, threaded.sources, strict=True)}
        self._unread = threaded.unread
        self._readers: dict[int, list[int]] = {}
        for call, source in self._source.items():
            self._readers.setdefault(source, []).append(call)
        for rank, names in enumerate(threaded.unread):
            for name in names:
                self._readers.setdefault(name, []).append(self._conclude(rank))

    def neighbours(self, node: int) -> list[int]:
        """Who reads a node, then what it reads."""
        if node == self._output:
            return [self._conclude(rank) for rank in range(self._ranks)]
        if node == self.input:
            return [self._load(rank) for rank in range(self._ranks)]
        rank = (node - self._count) % self._ranks
        if node == self._conclude(rank):
            return [self._output, *self._unread[rank]]
        return [*self._readers.get(node, ()), self._source.get(node, self.input)]

    def _calls(self, schedule: Schedule, transfers: Transfers) -> Iterator[Call[int]]:
        # One message a call is all that Ray's accelerators carry.
        message = dict(zip(transfers.consumer.tolist(), transfers.producer.tolist(), strict=True))
        sends = set(transfers.producer.tolist())
        rank_of = schedule.rank.tolist()
        for row in _rows(schedule):
            for call in row:
                yield Call(rank_of[call], call, (message[call],) if call in message else (), call in sends)

    def _load(self, rank: int) -> int:
        return self._count + rank

    def _conclude(self, rank: int) -> int:
        return self._count + self._ranks + rank
