"""Running a schedule in thought: every rank goes on as far as what it needs from other ranks has arrived.

One pass gives the verdict (do all slots run?), an order that respects every need, and the time at which
every slot starts. Needs within a rank are met by the order of the rank itself, which
:mod:`piper_dsl.check.order` looks at; only needs between ranks are waited for here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .schedule import Schedule
from .slots import Slots

__all__ = ["Arrivals", "Run", "find_arrivals", "run_schedule", "run_slots"]

SEVERAL = -2
"""In the place of a slot, where there are many."""


@dataclass(frozen=True, eq=False)
class Arrivals:
    """What every slot needs from other ranks: ``only[k]`` is a slot, -1 for none, and ``need[k]`` the number of
    that need; int64.

    Where they are ``SEVERAL``, all of them are in ``others``, as (slot, number of the need). ``own_order`` tells
    whether what a slot needs of its own rank always stands before it.
    """

    only: np.ndarray
    need: np.ndarray
    others: dict[int, list[tuple[int, int]]]
    own_order: bool


@dataclass(frozen=True, eq=False)
class Run:
    """``start`` has the time of every slot (float64; 0 where it never starts), ``order`` those that ran
    (int64), in an order that respects all needs; ``heads[r]`` counts what rank ``r`` ran."""

    start: np.ndarray
    order: np.ndarray
    heads: list[int]


def find_arrivals(schedule: Schedule, slots: Slots) -> Arrivals:
    """The needs of every slot between ranks. Linear time."""
    rank = schedule.rank[slots.first[:-1]]
    own = np.repeat(np.arange(len(slots)), np.diff(slots.needs.offsets))
    between = rank[own] != rank[slots.needs.sources]
    number = np.flatnonzero(between)
    needing, sources = own[number], slots.needs.sources[number]
    only, need = np.full(len(slots), -1), np.full(len(slots), -1)
    only[needing], need[needing] = sources, number
    others: dict[int, list[tuple[int, int]]] = {}
    several = np.isin(needing, np.flatnonzero(np.bincount(needing, minlength=len(slots)) > 1))
    columns = (needing[several], sources[several], number[several])
    for slot, source, which in zip(*(column.tolist() for column in columns), strict=True):
        others.setdefault(slot, []).append((source, which))
    only[needing[several]] = SEVERAL
    own_order = not np.any(slots.needs.sources[~between] >= own[~between])
    return Arrivals(only, need, others, own_order)


def run_slots(rows: Sequence[Sequence[int]], arrivals: Arrivals, durations: Sequence[float], delays: np.ndarray) -> Run:
    """Runs rows of slots, each in order, until all ran or all wait. Linear time.

    A slot starts when the one before it on its row has ended and what it needs has arrived, each need its
    delay (``delays``, by number) after the end of what is needed. All run exactly if rows and needs together
    have no cycle.
    """
    only, others = arrivals.only.tolist(), arrivals.others
    delay: list[float] = np.append(delays, 0.0)[arrivals.need].tolist()
    end: list[float] = [-1.0] * len(only)
    start: list[float] = [0.0] * len(only)
    order: list[int] = []
    # The rank that waits for a slot, and by rank the one that waited for that before it; -1 for none.
    waiting, before = [-1] * len(only), [-1] * len(rows)
    heads, free = [0] * len(rows), [0.0] * len(rows)
    ready = list(range(len(rows) - 1, -1, -1))
    while ready:
        rank = ready.pop()
        row, now = rows[rank], free[rank]
        for head in range(heads[rank], len(row)):
            slot = row[head]
            source = only[slot]
            if source >= 0:
                if end[source] < 0.0:
                    break
                arrived = end[source] + delay[slot]
                if arrived > now:
                    now = arrived
            elif source == SEVERAL:
                source, arrived = _latest(others[slot], end, delays)
                if arrived < 0.0:
                    break
                if arrived > now:
                    now = arrived
            start[slot] = now
            now += durations[slot]
            end[slot] = now
            waiter = waiting[slot]
            while waiter >= 0:
                ready.append(waiter)
                waiter = before[waiter]
        else:
            order += row[heads[rank] :]
            heads[rank], free[rank] = len(row), now
            continue
        order += row[heads[rank] : head]
        # Waiting: the time at which the row was free is that at which its last slot ended.
        before[rank], waiting[source] = waiting[source], rank
        heads[rank], free[rank] = head, end[row[head - 1]] if head else 0.0
    return Run(np.array(start), np.array(order, dtype=np.int64), heads)


def run_schedule(schedule: Schedule, durations: np.ndarray, delays: np.ndarray) -> Run:
    """The run of a schedule whose slots take ``durations`` and whose needs arrive after ``delays``; the last
    ones are remembered, since checking, simulating and lowering all ask for the same one."""
    for known_durations, known_delays, run in schedule.runs:
        # Comparing takes a fifth of the time that a digest of them would.
        if np.array_equal(durations, known_durations) and np.array_equal(delays, known_delays):
            return run
    run = run_slots(schedule.slots.rows(), schedule.arrivals, durations.tolist(), delays)
    schedule.runs.append((durations, delays, run))
    return run


def _latest(needs: list[tuple[int, int]], end: list[float], delays: np.ndarray) -> tuple[int, float]:
    """When the last of several needs arrives; -1 and which one, where one has not ended."""
    for source, _ in needs:
        if end[source] < 0.0:
            return source, -1.0
    return needs[0][0], max(end[source] + float(delays[number]) for source, number in needs)
