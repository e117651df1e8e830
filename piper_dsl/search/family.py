"""A family of rules for list scheduling: what goes first, how much may be in flight, when W may run.

Members are 1F1B, ZB-H1, ZB-H2 and schedules like those that Qi et al. find automatically (arXiv 2401.10241,
section 3) for one stage a rank, ZB-V for two. All stay within the limits of memory: a forward leaves room
for one activation of every later stage of its rank, so that what has entered can always go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product

from ..expand.jobs import Jobs
from ..expand.list_scheduler import State, list_schedule
from ..ir.operations import Kind
from .orders import Candidate, Orders

__all__ = ["Member", "follow", "members"]

_SLACK = 1e-9


@dataclass(frozen=True)
class Member:
    """One rule.

    ``first`` is the order of preference of kinds; of one kind, later stages go first, or earlier ones. At
    most ``depth - slope * r`` activations are in flight on rank ``r``. A ``patient`` W runs only where it
    ends before the next operation gets ready; with ``make_room`` it goes first where memory is full.
    """

    first: tuple[Kind, ...]
    later_first: bool
    depth: float
    slope: int
    patient: bool
    make_room: bool


def members(jobs: Jobs) -> Iterator[Member]:
    """All members for the jobs of one form."""
    ranks, chunks = jobs.placement.ranks, max(map(len, jobs.placement.owned))
    depths = [(float("inf"), 0), (ranks, 0), (ranks, 1), (ranks + 1, 1), (2 * ranks - 1, 2), (2 * ranks, 2)]
    splits = (False, True) if Kind.W in jobs.kinds else (False,)
    later = (True, False) if chunks > 1 else (True,)
    for first, later_first, (depth, slope), *w in product(permutations(jobs.kinds), later, depths, splits, splits):
        yield Member(first, later_first, depth * chunks, slope * chunks, *w)


def follow(orders: Orders, member: Member) -> Candidate | None:
    """The order that a member gives."""
    run = list_schedule(orders.jobs, _Rule(orders, member).choose)
    return None if run.waiting else orders.candidate(run.rows, "list scheduling")


class _Rule:
    """Chooses for one run, and keeps count of what ranks hold."""

    def __init__(self, orders: Orders, member: Member) -> None:
        jobs = self._jobs = orders.jobs
        self._member = member
        self._kept = orders.loads.kept
        self._places = [member.first.index(kind) for kind in jobs.kinds]
        self._cells = jobs.graph.stages * jobs.microbatches
        owned = jobs.placement.owned
        aside = (orders.loads.aside(rank) for rank in range(len(owned)))
        self._room = [room - other + _SLACK for room, other in zip(orders.problem.room, aside, strict=True)]
        self._depth = [max(float(len(own)), member.depth - member.slope * rank) for rank, own in enumerate(owned)]
        self._later = [0] * jobs.graph.stages
        self._reserve = [0.0] * jobs.graph.stages
        size = orders.problem.sizes["activation"]
        for stages in owned:
            ordered = sorted(stages, key=jobs.graph.topological.index)
            for number, stage in enumerate(ordered):
                self._later[stage] = len(ordered) - 1 - number
                self._reserve[stage] = sum(size[later] for later in ordered[number:])
        self._one = [min((size[stage] for stage in stages), default=0.0) for stages in owned]

    def choose(self, rank: int, state: State, heads: Sequence[int]) -> int:
        """The first by preference of kinds, then of stages; -1 where none may start."""
        best, chosen = (len(self._jobs.kinds), 0), -1
        for job in heads:
            key = self._key(rank, state, job)
            if key is not None and key < best:
                best, chosen = key, job
        if chosen >= 0:
            self._room[rank] -= self._kept[chosen]
        return chosen

    def _key(self, rank: int, state: State, job: int) -> tuple[int, int] | None:
        """The place of a job in the order of preference; None where it may not start."""
        member, jobs, room = self._member, self._jobs, self._room[rank]
        number, cell = divmod(job, self._cells)
        kind, stage, place = jobs.kinds[number], cell // jobs.microbatches, self._places[number]
        if kind is Kind.F and (
            room < self._reserve[stage] or self._depth[rank] - state.in_flight < 1 + self._later[stage]
        ):
            return None
        if kind is Kind.W and room < self._one[rank]:
            place = -1 if member.make_room else place
        elif kind is Kind.W and member.patient and state.now + jobs.duration[job] > state.idle_until:
            return None
        return place, -stage if member.later_first else stage
