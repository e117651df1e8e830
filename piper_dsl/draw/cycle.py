"""The circle in which ranks wait for each other, as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..ir.schedule import Schedule
from .drawing import Drawing, draw_shapes
from .errors import DrawError
from .palette import paint
from .shapes import Arrow, Shape, rectangle, words
from .stuck import Head
from .theme import LIGHT, Theme
from .waits import waits_for

__all__ = ["Wait", "draw_cycle", "find_cycle"]

_LEFT_OUT = -1
_MOST_BETWEEN = 6
"""Where more operations stand between a stuck one and the one that is waited for, those in the middle are left out."""
_Row = dict[int, int]
"""Indices of operations, or that some are left out, by column."""
_BOX, _TALL, _COLUMN, _ROW = 46.0, 28.0, 72.0, 76.0
_FONT, _SMALL, _TITLE = 10.0, 8.5, 13.0


@dataclass(frozen=True)
class Wait:
    """``head`` is stuck: it waits for ``needed``, which stands on the rank of the next wait of the circle, behind
    the head of that rank."""

    head: Head
    needed: int


def find_cycle(schedule: Schedule, heads: Sequence[Head]) -> tuple[Wait, ...]:
    """The first circle of stuck ranks, each waiting for the next; empty where there is none."""
    stuck = {head.rank: head for head in heads if head.sources}
    seen: set[int] = set()
    for rank in stuck:
        path: list[int] = []
        while rank in stuck and rank not in seen:
            seen.add(rank)
            path.append(rank)
            rank = int(schedule.rank[stuck[rank].sources[0]])
        if rank in path:
            return tuple(Wait(stuck[member], stuck[member].sources[0]) for member in path[path.index(rank) :])
    return ()


def draw_cycle(schedule: Schedule, heads: Sequence[Head], theme: Theme = LIGHT) -> Drawing:
    """The circle: a row for each of its ranks, from the stuck operation to the one that is waited for.

    Raises :class:`DrawError` where no ranks wait in a circle.
    """
    cycle = find_cycle(schedule, heads)
    if not cycle:
        raise DrawError("there is no circle of waiting ranks to draw", "draw the timeline with `piper-dsl visualize`")
    # What the one before waits for stands on the rank of the next.
    rows = [_row(schedule, wait.head, cycle[index - 1].needed) for index, wait in enumerate(cycle)]
    extent = max((max(max(row) for row in rows) + 1) * _COLUMN, len(rows) * _ROW)
    return draw_shapes(_shapes(schedule, cycle, rows, theme), theme, _FONT, extent)


def _row(schedule: Schedule, head: Head, needed: int) -> _Row:
    """What a rank ran last, if anything, at 0; then its stuck operation and all up to what is waited for."""
    front, back = list(range(head.first, head.index + 1)), list(range(head.index + 1, needed + 1))
    if len(back) > _MOST_BETWEEN:
        back = [*back[: _MOST_BETWEEN // 2], _LEFT_OUT, *back[-_MOST_BETWEEN // 2 :]]
    row = dict(enumerate([*front, *back], 1))
    return {0: head.first - 1, **row} if head.first > schedule.offsets[head.rank] else row


def _shapes(schedule: Schedule, cycle: Sequence[Wait], rows: Sequence[_Row], theme: Theme) -> Iterator[Shape | Arrow]:
    ranks = " → ".join(f"rank {wait.head.rank}" for wait in [*cycle, cycle[0]])
    yield words("title", f"{schedule.name}: {ranks}", 0.0, 66.0, _TITLE, fontcolor=theme.ink)
    said = "red: waits for, round the circle; dashed: stuck; first in a row: what ran last"
    yield words("meaning", said, 0.0, 48.0, _SMALL, fontcolor=theme.muted)
    boxes: dict[int, Shape] = {}
    for place, (wait, row) in enumerate(zip(cycle, rows, strict=True)):
        rank = wait.head.rank
        yield words(f"rank {rank}", f"rank {rank}", -10.0, -place * _ROW, _FONT, "r", fontcolor=theme.ink)
        own = {column: _box(schedule, wait.head, column, index, -place * _ROW, theme) for column, index in row.items()}
        boxes.update({row[column]: box for column, box in own.items()})
        yield from own.values()
        waiting = [own[column] for column in sorted(own) if column]
        yield from (waits_for(behind, before, theme) for before, behind in pairwise(waiting))
    yield from (waits_for(boxes[wait.head.index], boxes[wait.needed], theme) for wait in cycle)


def _box(schedule: Schedule, head: Head, column: int, index: int, y: float, theme: Theme) -> Shape:
    """An operation: that which ran in its colour, those that wait pale, the stuck one dashed."""
    left, bottom = column * _COLUMN, y - _TALL / 2
    if index == _LEFT_OUT:
        look = {"label": "…", "style": "", "penwidth": "0", "fontcolor": theme.muted}
        return rectangle(f"left out on rank {head.rank}", left, bottom, _BOX, _TALL, **look)
    operation, look = schedule.operation(index), {"fillcolor": theme.lane, "fontcolor": theme.ink, "color": theme.axis}
    if column == 0:
        colours = paint(operation.kind, theme=theme)
        look = {"fillcolor": colours.fill, "fontcolor": colours.ink}
    elif index == head.index:
        look |= {"color": theme.alarm, "style": "filled,dashed", "penwidth": "1.6", "tooltip": head.reason}
    return rectangle(f"{operation} #{index}", left, bottom, _BOX, _TALL, label=str(operation), **look)
