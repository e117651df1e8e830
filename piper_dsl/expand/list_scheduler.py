"""Greedy list scheduling: whenever a rank is free, it starts one of what is ready, as a rule chooses.

Graham, Bounds on multiprocessing timing anomalies, SIAM J. Appl. Math. 17 (1969), with every operation bound
to its rank. Operations of one kind and stage run in the order of their microbatches; since microbatches
are alike, no other order of them is faster or holds less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from ..ir.operations import Kind
from .jobs import Jobs

__all__ = ["NEVER", "ListRun", "State", "list_schedule"]

NEVER = 10**15
"""`idle_until` where nothing tells when the next operation gets ready."""


class State(NamedTuple):
    """What a rank knows when it chooses.

    ``ready``: its operations whose needs are met. ``held``: activations from the start of F to the end of B
    or W. ``in_flight``: those of them whose B or I has not run. ``now``: the time. ``idle_until``: when its
    next operation gets ready, as far as what runs now tells.
    """

    ready: int
    held: int
    in_flight: int
    now: float
    idle_until: float


Choose = Callable[[int, State, Sequence[int]], int]
"""From a rank, its state and the jobs that are ready (the first of each kind and stage) to one of them, or -1."""


@dataclass(frozen=True, eq=False)
class ListRun:
    """The jobs of every rank in the order they started, and when each did.

    Where the rule let some never start, ``waiting`` has the ranks with something ready, their states and
    those jobs at the end; it is empty otherwise.
    """

    rows: list[list[int]]
    start: list[float]
    waiting: list[tuple[int, State, list[int]]]


def list_schedule(jobs: Jobs, choose: Choose) -> ListRun:
    """Orders all jobs. A rank chooses when an operation of it ends or becomes ready. Deterministic."""
    return _Run(jobs, choose).run()


class _Run:
    def __init__(self, jobs: Jobs, choose: Choose) -> None:
        self._jobs, self._choose = jobs, choose
        ranks = jobs.placement.ranks
        self._queues: list[list[list[int]]] = [[] for _ in range(ranks)]
        for (rank, _, _), queue in jobs.queues().items():
            self._queues[rank].append(queue[::-1])
        self._missing = [len(needs) for needs in jobs.needs]
        self._arrival = [0.0] * len(jobs)
        self._ready = [False] * len(jobs)
        self._counts = [[0, 0, 0] for _ in range(ranks)]  # ready, held, in flight
        self._free = [0.0] * ranks
        self._pending: list[list[tuple[float, int]]] = [[] for _ in range(ranks)]
        self._events: list[tuple[float, int]] = [(0, rank) for rank in range(ranks)]
        self._rows: list[list[int]] = [[] for _ in range(ranks)]
        self._start = [0.0] * len(jobs)
        self._changes = [_changes(jobs, kind) for kind in jobs.kinds]

    def run(self) -> ListRun:
        for job, missing in enumerate(self._missing):
            if not missing:
                self._pending[self._jobs.rank[job]].append((0, job))
        now: float = 0
        while self._events:
            now, rank = heappop(self._events)
            if self._free[rank] <= now:
                self._decide(rank, now)
        stuck = ((rank, self._state(rank, now), self._heads(rank)) for rank in range(len(self._rows)))
        return ListRun(self._rows, self._start, [one for one in stuck if one[2]])

    def _decide(self, rank: int, now: float) -> None:
        pending = self._pending[rank]
        while pending and pending[0][0] <= now:
            self._ready[heappop(pending)[1]] = True
            self._counts[rank][0] += 1
        heads = self._heads(rank)
        if heads:
            job = self._choose(rank, self._state(rank, now), heads)
            if job >= 0:
                self._begin(rank, job, now)

    def _heads(self, rank: int) -> list[int]:
        return [queue[-1] for queue in self._queues[rank] if queue and self._ready[queue[-1]]]

    def _state(self, rank: int, now: float) -> State:
        pending = self._pending[rank]
        ready, held, in_flight = self._counts[rank]
        return State(ready, held, in_flight, now, pending[0][0] if pending else NEVER)

    def _begin(self, rank: int, job: int, now: float) -> None:
        jobs = self._jobs
        for queue in self._queues[rank]:
            if queue and queue[-1] == job:
                queue.pop()
                break
        counts, (held, in_flight) = self._counts[rank], self._changes[job // (len(jobs) // len(jobs.kinds))]
        counts[0] -= 1
        counts[1] += held
        counts[2] += in_flight
        self._rows[rank].append(job)
        self._start[job] = now
        self._free[rank] = end = now + jobs.duration[job]
        heappush(self._events, (end, rank))
        for other in jobs.needed_by[job]:
            self._arrive(other, end + jobs.delay(job, other))

    def _arrive(self, job: int, time: float) -> None:
        self._arrival[job] = max(self._arrival[job], time)
        self._missing[job] -= 1
        if not self._missing[job]:
            rank = self._jobs.rank[job]
            heappush(self._pending[rank], (self._arrival[job], job))
            heappush(self._events, (self._arrival[job], rank))


def _changes(jobs: Jobs, kind: Kind) -> tuple[int, int]:
    """What an operation adds to what its rank holds, and to what it has in flight, once it has ended."""
    if jobs.backward is None:
        return 0, 0
    return (kind is Kind.F) - (kind is jobs.ends), (kind is Kind.F) - (kind is jobs.backward)
