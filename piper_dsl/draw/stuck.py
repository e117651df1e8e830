"""How far a schedule gets that cannot run: a timeline up to the operations at which its ranks are stuck."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ..ir.clock import run_slots
from ..ir.costs import Costs
from ..ir.needs import Needs
from ..ir.operations import Operation
from ..ir.schedule import Schedule
from ..simulate.engine import simulate
from ..simulate.timeline import Timeline

__all__ = ["Head", "run_until_stuck"]

_MOST_AWAITED = 3


@dataclass(frozen=True)
class Head:
    """An operation that never starts: its rank has been free since ``time``; it would take ``duration``.

    ``awaited`` are those of its needs that never end. ``first`` is the first of its slot, ``index`` itself and
    ``sources`` what it awaits, as places in the schedule.
    """

    rank: int
    first: int
    index: int
    sources: tuple[int, ...]
    operation: Operation
    awaited: tuple[Operation, ...]
    time: float
    duration: float

    @property
    def label(self) -> str:
        """Kind and microbatch: ``F2``."""
        return f"{self.operation.kind.name}{'' if self.operation.microbatch is None else self.operation.microbatch}"

    @property
    def reason(self) -> str:
        """``1F2 is stuck at 3: waits for 0F2``."""
        shown = [*map(str, self.awaited[:_MOST_AWAITED]), *(["…"] if len(self.awaited) > _MOST_AWAITED else [])]
        return f"{self.operation} is stuck at {self.time:.6g}: waits for {', '.join(shown)}"


def run_until_stuck(schedule: Schedule, costs: Costs) -> tuple[Timeline, tuple[Head, ...]]:
    """What runs before nothing goes on any more, and the head of every stuck rank.

    Operations of stages that do not exist are left out; transfers are those of ``buffered``, which never wait.
    The timeline is that of a schedule of the operations that ran. Linear time.
    """
    known = (schedule.stage >= 0) & (schedule.stage < schedule.stages)
    place = np.flatnonzero(known)
    schedule = schedule if known.all() else _only(schedule, known)
    slots, needs = schedule.slots, schedule.needs
    durations = costs.durations(schedule, slots)
    rows = _before_own_needs(schedule, needs)
    run = run_slots(rows, schedule.arrivals, durations.tolist(), costs.delays(schedule))
    ran = np.zeros(len(slots), dtype=bool)
    ran[run.order] = True
    heads = []
    for rank, done in enumerate(run.heads):
        slot = int(slots.offsets[rank]) + done
        if slot < slots.offsets[rank + 1]:
            time = float(run.start[slot - 1] + durations[slot - 1]) if done else 0.0
            heads.append(_head(schedule, needs, slot, ran, place, time, float(durations[slot])))
    return simulate(_only(schedule, ran[schedule.slot]), costs), tuple(heads)


def _only(schedule: Schedule, kept: np.ndarray) -> Schedule:
    """A schedule of some of the operations; one whose partner is gone starts on its own."""
    counts = np.bincount(schedule.rank[kept], minlength=schedule.ranks)
    columns = {name: getattr(schedule, name)[kept] for name in ("kind", "stage", "microbatch", "joined")}
    columns["joined"] &= np.diff(schedule.slot[kept], prepend=-1) == 0
    origin = replace(schedule.origin, site=schedule.origin.site[kept], context=schedule.origin.context[kept])
    return replace(schedule, offsets=np.append(0, np.cumsum(counts)), origin=origin, **columns)


def _before_own_needs(schedule: Schedule, needs: Needs) -> list[list[int]]:
    """The slots of every rank, up to the first that needs itself or one behind it."""
    needing = np.repeat(schedule.slot, np.diff(needs.offsets))
    same_rank = schedule.rank[schedule.slots.first[needing]] == schedule.rank[needs.sources]
    never = np.unique(needing[same_rank & (schedule.slot[needs.sources] >= needing)])
    ranks = schedule.rank[schedule.slots.first[never]]
    first = dict(zip(ranks[::-1].tolist(), never[::-1].tolist(), strict=True))
    bounds = pairwise(schedule.slots.offsets.tolist())
    return [list(range(start, first.get(rank, end))) for rank, (start, end) in enumerate(bounds)]


def _head(
    schedule: Schedule, needs: Needs, slot: int, ran: np.ndarray, place: np.ndarray, time: float, duration: float
) -> Head:
    """The operation of a stuck slot that needs what never ends; of several, the first."""
    first, after = schedule.slots.first[slot : slot + 2].tolist()
    needing = next((half for half in range(first, after) if not ran[schedule.slot[needs.of(half)]].all()), first)
    sources = [source for source in needs.of(needing).tolist() if not ran[schedule.slot[source]]]
    return Head(
        rank=int(schedule.rank[first]),
        first=int(place[first]),
        index=int(place[needing]),
        sources=tuple(place[sources].tolist()),
        operation=schedule.operation(needing),
        awaited=tuple(map(schedule.operation, sources)),
        time=time,
        duration=duration,
    )
