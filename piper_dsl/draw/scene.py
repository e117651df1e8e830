"""What of a timeline a picture shows: the window, and the operations in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..ir.schedule import Schedule
from ..simulate.timeline import Timeline
from .errors import DrawError
from .stuck import Head
from .view import View

__all__ = ["Ran", "Scene", "find_scene", "find_scenes"]

_SHORTEST = 1e-250
"""In whatever unit: of less there are not so many points or columns as a float can count."""


@dataclass(frozen=True, eq=False)
class Scene:
    """The times from ``start`` to ``end`` of ``ranks``.

    ``heads`` are the operations that never start, and ``findings`` counts what is wrong with the schedule.
    """

    timeline: Timeline
    view: View
    start: float
    end: float
    ranks: tuple[int, ...]
    heads: tuple[Head, ...] = ()
    findings: int = 0

    @property
    def schedule(self) -> Schedule:
        return self.timeline.schedule

    @property
    def duration(self) -> float:
        return self.end - self.start

    @property
    def whole(self) -> bool:
        """Whether nothing was cut away."""
        return self.ranks == tuple(range(self.schedule.ranks)) and self.covers(0.0, self.timeline.makespan)

    def covers(self, start: float, end: float) -> bool:
        return self.start <= start and end <= self.end

    @cached_property
    def row_of(self) -> Mapping[int, int]:
        """The row of every rank that is shown."""
        return {rank: row for row, rank in enumerate(self.ranks)}

    @cached_property
    def shown(self) -> np.ndarray:
        """The operations in the window, in the order of the schedule; int64. Those that only touch it are not."""
        start, end = self.timeline.start, self.timeline.end
        lasting = (end > start) & (end > self.start) & (start < self.end)
        instant = (end <= start) & (start >= self.start) & (end <= self.end)
        return np.flatnonzero((lasting | instant) & np.isin(self.schedule.rank, self.ranks))

    @cached_property
    def lasting(self) -> np.ndarray:
        """Those that take time; int64."""
        lasts: np.ndarray = self.shown[self.timeline.end[self.shown] > self.timeline.start[self.shown]]
        return lasts


@dataclass(frozen=True, eq=False)
class Ran:
    """What is drawn: a timeline, and where it does not go on, why."""

    timeline: Timeline
    heads: tuple[Head, ...] = ()
    findings: int = 0

    @property
    def last(self) -> float:
        """When the last operation ends, or would."""
        return max([self.timeline.makespan, *(head.time + head.duration for head in self.heads)])


def find_scene(timeline: Timeline, view: View, heads: tuple[Head, ...] = (), findings: int = 0) -> Scene:
    """What a picture of one timeline shows. Raises as :func:`find_scenes`."""
    return find_scenes([Ran(timeline, heads, findings)], view)[0]


def find_scenes(all_that_ran: Sequence[Ran], view: View) -> list[Scene]:
    """What a picture of several shows: of one that has ended before the window begins, empty lanes.

    Raises :class:`DrawError` for a window that holds nothing of any or is too short to have a scale, and for ranks
    that one does not have.
    """
    last = max(ran.last for ran in all_that_ran)
    start, end = view.start or 0.0, last if view.end is None else min(view.end, last)
    if not (start < end or start == last == 0.0):
        raise DrawError(
            f"there is nothing to draw from {start:g} to {view.end if view.end is not None else end:g}",
            f"choose a window within 0 to {last:g}",
        )
    return [_scene(ran, view, start, end if ran.last <= start else min(end, ran.last)) for ran in all_that_ran]


def _scene(ran: Ran, view: View, start: float, end: float) -> Scene:
    if 0 < end - start < _SHORTEST:
        raise DrawError(f"from {start:g} to {end:g} is too short to be drawn", "choose a smaller unit for all times")
    count = ran.timeline.schedule.ranks
    ranks = tuple(range(count)) if view.ranks is None else tuple(dict.fromkeys(view.ranks))
    if not ranks:
        raise DrawError("there are no ranks to draw", f"choose from 0 to {count - 1}")
    for rank in ranks:
        if not 0 <= rank < count:
            raise DrawError(f"there is no rank {rank} to draw", f"choose from 0 to {count - 1}")
    heads = tuple(head for head in ran.heads if head.rank in ranks)
    return Scene(ran.timeline, view, start, end, ranks, heads, ran.findings)
