"""The stage graph of a schedule, and the needs of its operations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ..ir.clock import run_slots
from ..ir.operations import Kind
from ..ir.schedule import Schedule
from .boxes import find_chunks, find_parts
from .caption import shortened
from .drawing import Drawing, draw_shapes
from .errors import DrawError
from .palette import paint
from .shapes import Arrow, Shape, rectangle, words
from .theme import LIGHT, Theme

__all__ = ["draw_needs", "draw_stages"]

_MOST_STAGES, _MOST_OPERATIONS = 500, 1_000
_WIDTH, _HEIGHT, _ACROSS, _DOWN = 62.0, 34.0, 92.0, 56.0
_BOX, _COLUMN, _ROW = 26.0, 36.0, 62.0
_FONT, _SMALL, _TITLE = 9.5, 7.0, 13.0


def draw_stages(schedule: Schedule, theme: Theme = LIGHT) -> Drawing:
    """Every stage with its ranks, an arrow to each that reads its output; stages that share parameters dashed.

    From left to right, a stage stands behind all it reads from. Raises :class:`DrawError` beyond 500 stages.
    """
    if schedule.stages > _MOST_STAGES:
        raise DrawError(f"{schedule.stages} stages are too many to draw", f"choose at most {_MOST_STAGES}")
    column = _depths(schedule)
    extent = max((max(column) + 1) * _ACROSS, max(map(column.count, column)) * _DOWN)
    return draw_shapes(_stage_shapes(schedule, column, theme), theme, _FONT, extent)


def _depths(schedule: Schedule) -> list[int]:
    """Of every stage, how many stand before it on the longest way to it."""
    depth = [0] * schedule.stages
    for stage in schedule.graph.topological:
        depth[stage] = max((depth[before] + 1 for before in schedule.graph.predecessors[stage]), default=0)
    return depth


def _stage_shapes(schedule: Schedule, column: list[int], theme: Theme) -> Iterator[Shape | Arrow]:
    place = {}
    for stage, across in enumerate(column):
        place[stage] = (across * _ACROSS, -column[:stage].count(across) * _DOWN)
    said = f"{schedule.name}: stages{', dashed: with the same parameters' if schedule.ties else ''}"
    yield words("title", said, -_WIDTH / 2, 2 * _HEIGHT, _TITLE, fontcolor=theme.ink)
    for stage, (x, y) in place.items():
        look = {"fillcolor": theme.lane, "color": theme.axis, "fontcolor": theme.ink}
        ranks = np.unique(schedule.placement.rank_of[stage]).tolist()
        said = f"rank{'s' if len(ranks) > 1 else ''} {shortened(ranks)}"
        name = f"stage {stage}"
        yield rectangle(name, x - _WIDTH / 2, y - _HEIGHT / 2, _WIDTH, _HEIGHT, label=f"{name}\\n{said}", **look)
    arrow = {"color": theme.arrow, "penwidth": "0.9", "arrowsize": "0.5"}
    tied = [pair for tie in schedule.ties for pair in pairwise(tie)]
    for source, target in schedule.graph.edges:
        yield _between(place, source, target, arrow)
    for source, target in tied:
        yield _between(place, source, target, {**arrow, "style": "dashed", "dir": "none", "color": theme.path})


def _between(place: dict[int, tuple[float, float]], source: int, target: int, look: dict[str, str]) -> Arrow:
    """An edge forwards; over the stages in between where there are any, or under them where it has no direction."""
    (x, y), (to_x, to_y) = place[source], place[target]
    names, side = (f"stage {source}", f"stage {target}"), -1 if "dir" in look else 1
    if side < 0 or (abs(to_x - x) > _ACROSS and y == to_y):
        edge = side * _HEIGHT / 2
        return Arrow(*names, (x, y + edge), (to_x, to_y + edge), look, bend=side * _HEIGHT)
    return Arrow(*names, (x + _WIDTH / 2, y), (to_x - _WIDTH / 2, to_y), look)


def draw_needs(schedule: Schedule, theme: Theme = LIGHT) -> Drawing:
    """Every operation, an arrow to each that needs it, and the order of every rank as thin lines.

    A row is a rank; an operation stands behind all that must end before it, as if each took as long as any other.
    Raises :class:`DrawError` beyond 1,000 operations, and where the operations wait in a circle.
    """
    if len(schedule) > _MOST_OPERATIONS:
        said = f"{len(schedule)} operations are too many for a graph"
        raise DrawError(said, f"choose smaller parameters: at most {_MOST_OPERATIONS} can be drawn")
    slots = schedule.slots
    run = run_slots(slots.rows(), schedule.arrivals, [1.0] * len(slots), np.zeros(len(slots.needs.sources)))
    if len(run.order) < len(slots):
        raise DrawError("the operations wait in a circle", "draw it with `piper-dsl check FILE --draw cycle.svg`")
    column = run.start.astype(int)[schedule.slot]
    extent = max((int(column.max(initial=0)) + 1) * _COLUMN, schedule.ranks * _ROW)
    return draw_shapes(_need_shapes(schedule, column, theme), theme, _FONT, extent)


def _need_shapes(schedule: Schedule, column: np.ndarray, theme: Theme) -> Iterator[Shape | Arrow]:
    chunk, (part, parts) = find_chunks(schedule), find_parts(schedule)
    chunks = int(chunk.max(initial=0)) + 1
    yield words("title", f"{schedule.name}: what operations need", 0.0, _BOX + 12.0, _TITLE, fontcolor=theme.ink)
    for rank in range(schedule.ranks):
        yield words(f"rank {rank}", f"rank {rank}", -10.0, -rank * _ROW, _FONT, "r", fontcolor=theme.ink)
    boxes = []
    for index, kind in enumerate(schedule.kind.tolist()):
        look = paint(Kind(kind), int(chunk[index]), chunks, theme)
        tall = _BOX / int(parts[index])
        top = -int(schedule.rank[index]) * _ROW + _BOX / 2 - int(part[index]) * tall
        boxes.append(
            rectangle(
                f"{schedule.operation(index)} #{index}",
                int(column[index]) * _COLUMN,
                top - tall,
                _BOX,
                tall,
                label=str(schedule.operation(index)),
                fillcolor=look.fill,
                fontcolor=look.ink,
                fontsize=f"{_SMALL:g}",
            )
        )
    yield from boxes
    yield from _order_arrows(schedule, boxes, theme)
    yield from _need_arrows(schedule, boxes, theme)


def _order_arrows(schedule: Schedule, boxes: list[Shape], theme: Theme) -> Iterator[Arrow]:
    """From every slot to the next of its rank."""
    look = {"color": theme.grid, "penwidth": "0.8", "dir": "none"}
    first = schedule.slots.first[:-1]
    for one, other in pairwise(first.tolist()):
        if schedule.rank[one] == schedule.rank[other]:
            yield _side_to_side(boxes[one], boxes[other], look)


def _need_arrows(schedule: Schedule, boxes: list[Shape], theme: Theme) -> Iterator[Arrow]:
    """Between ranks straight, within a rank above its row."""
    needs = schedule.needs
    between = {"color": theme.arrow, "penwidth": "0.7", "arrowsize": "0.4"}
    within = {**between, "color": theme.axis}
    for index in range(len(schedule)):
        for source in needs.of(index).tolist():
            one, other = boxes[source], boxes[index]
            if schedule.rank[source] != schedule.rank[index]:
                yield _side_to_side(one, other, between)
            elif other.x - one.x > _COLUMN:
                top = (one.x, one.y + one.height / 2), (other.x, other.y + other.height / 2)
                yield Arrow(one.name, other.name, *top, within, bend=_BOX * 0.6)
            else:
                yield _side_to_side(one, other, within)


def _side_to_side(one: Shape, other: Shape, look: dict[str, str]) -> Arrow:
    """From the right edge of a box to the left edge of another."""
    return Arrow(one.name, other.name, (one.x + one.width / 2, one.y), (other.x - other.width / 2, other.y), look)
