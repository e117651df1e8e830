"""Orders of jobs: when everything runs, how good that is, and whether every rank has the memory for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from ..expand.jobs import Jobs
from ..ir.clock import Arrivals, run_slots
from .loads import Loads
from .problem import Form, Measure, Problem, slack_of

__all__ = ["Candidate", "Orders", "Rows", "Times"]

Rows = tuple[tuple[int, ...], ...]
"""The jobs of every rank, in order."""


@dataclass(frozen=True, eq=False)
class Times:
    """When the jobs of an order start and the ranks end.

    ``rating`` says how good that is, less being better: what is measured, then the sum of all ends.
    """

    rating: tuple[float, float]
    start: list[float]
    ends: list[float]

    @property
    def value(self) -> float:
        return self.rating[0]


@dataclass(frozen=True, eq=False)
class Candidate:
    """An order of the jobs of a form, and where it comes from."""

    form: Form
    rows: Rows
    times: Times
    origin: str


class Orders:
    """Evaluates orders of the jobs of one form of a problem."""

    def __init__(self, problem: Problem, form: Form) -> None:
        self.problem = problem
        self.jobs: Jobs = problem.jobs(form)
        self.loads = Loads(problem, self.jobs)
        self.by_span = problem.measure is Measure.SPAN
        self._arrivals, self._delays = _arrivals(self.jobs)

    def times(self, rows: Sequence[Sequence[int]]) -> Times | None:
        """When everything runs as early as its rank and its needs allow; None where it waits for itself."""
        duration = self.jobs.duration
        run = run_slots(rows, self._arrivals, duration, self._delays)
        if len(run.order) < len(self.jobs):
            return None
        start: list[float] = run.start.tolist()
        tails = self.problem.tails
        ends = [
            start[row[-1]] + duration[row[-1]] + tail if row else tail for row, tail in zip(rows, tails, strict=True)
        ]
        first = [start[row[0]] if row and self.by_span else 0.0 for row in rows]
        measured = max(end - begin for end, begin in zip(ends, first, strict=True))
        return Times((round(measured, 9), sum(ends)), start, ends)

    def candidate(self, rows: Sequence[Sequence[int]], origin: str) -> Candidate | None:
        """Rows as a candidate; None where they wait for themselves or do not fit into memory."""
        if not all(self.fits(rank, row) for rank, row in enumerate(rows)):
            return None
        times = self.times(rows)
        return Candidate(self.jobs.kinds, tuple(map(tuple, rows)), times, origin) if times else None

    def fits(self, rank: int, row: Sequence[int]) -> bool:
        """Whether a rank never holds more than it may."""
        return self.loads.peak(row) <= self.problem.room[rank] + slack_of(self.problem.limits[rank])

    @cached_property
    def before(self) -> list[frozenset[int]]:
        """The jobs that must stand earlier in the row of every job: what it needs there, and its predecessor."""
        rank, needs = self.jobs.rank, self.jobs.needs
        found = [{need for need in needs[job] if rank[need] == rank[job]} for job in range(len(self.jobs))]
        for queue in self.jobs.queues().values():
            for earlier, later in pairwise(queue):
                found[later].add(earlier)
        return [frozenset(one) for one in found]

    @cached_property
    def behind(self) -> list[frozenset[int]]:
        """The jobs that must stand later in the row of every job."""
        found: list[set[int]] = [set() for _ in range(len(self.jobs))]
        for job, earlier in enumerate(self.before):
            for one in earlier:
                found[one].add(job)
        return [frozenset(one) for one in found]


def _arrivals(jobs: Jobs) -> tuple[Arrivals, np.ndarray]:
    """What every job needs from other ranks, and the delay of each of these needs, by number."""
    first = [-1] * len(jobs)
    number = np.full(len(jobs), -1)
    others: dict[int, list[tuple[int, int]]] = {}
    delays: list[float] = []
    for job, needs in enumerate(jobs.needs):
        far = [need for need in needs if jobs.rank[need] != jobs.rank[job]]
        if far:
            first[job], number[job] = far[0], len(delays)
        if len(far) > 1:
            others[job] = [(need, len(delays) + k) for k, need in enumerate(far)]
        delays += (jobs.delay(need, job) for need in far)
    return Arrivals(np.array(first), number, others, True), np.array(delays)
