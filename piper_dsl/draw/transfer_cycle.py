"""The circle in which written transfers wait for each other, as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ..ir.operations import TRANSFERS
from ..ir.schedule import Schedule
from ..plan.completion import complete
from ..plan.plan import COMPUTE
from ..plan.transport import Transport
from ..plan.written import read_written
from .drawing import Drawing, draw_shapes
from .errors import DrawError
from .palette import paint
from .shapes import Arrow, Shape, rectangle, words
from .theme import LIGHT, Theme
from .waits import meets, waits_for

__all__ = ["draw_transfer_cycle"]

_BOX, _TALL, _COLUMN, _ROW = 66.0, 28.0, 96.0, 84.0
_FONT, _SMALL, _TITLE = 9.5, 8.5, 13.0

_Node = tuple[int, ...]
"""Operations that happen at once: one, or the SEND and the RECV that meet."""


def draw_transfer_cycle(schedule: Schedule, transport: str, theme: Theme = LIGHT) -> Drawing:
    """What waits for what on a transport: a row for each rank, its operations in their order, red arrows round.

    Raises :class:`DrawError` where the transfers complete, ValueError for a transport there is none of.
    """
    written = read_written(schedule)
    steps = complete(written, Transport.parse(transport)).cycle
    first, operation = written.slots.first, written.operation
    cycle = [
        tuple(int(first[s // 3] if s % 3 == COMPUTE else operation[s // 3, s % 3]) for s in node) for node in steps
    ]
    if not cycle:
        raise DrawError(f"the transfers complete on {transport}", "draw the timeline with `piper-dsl visualize`")
    boxes = _boxes(schedule, cycle, theme)
    extent = max(max(box.x, -box.y) for box in boxes.values()) + _BOX
    return draw_shapes(_shapes(schedule, transport, cycle, boxes, theme), theme, _FONT, extent)


def _boxes(schedule: Schedule, cycle: list[_Node], theme: Theme) -> dict[int, Shape]:
    """The box of every operation of the circle: ranks are rows, and a rank's operations stand in their order."""
    members = sorted({index for node in cycle for index in node})
    ranks = sorted({int(schedule.rank[index]) for index in members})
    boxes: dict[int, Shape] = {}
    for row, rank in enumerate(ranks):
        for column, index in enumerate(member for member in members if schedule.rank[member] == rank):
            operation = schedule.operation(index)
            colours = paint(operation.kind, theme=theme)
            look = {"label": str(operation), "fillcolor": colours.fill, "fontcolor": colours.ink}
            if operation.kind in TRANSFERS:
                look |= {"fillcolor": theme.lane, "fontcolor": theme.ink, "color": theme.axis}
            name = f"{operation} #{index}"
            boxes[index] = rectangle(name, column * _COLUMN, -row * _ROW - _TALL / 2, _BOX, _TALL, **look)
    return boxes


def _shapes(
    schedule: Schedule, transport: str, cycle: list[_Node], boxes: dict[int, Shape], theme: Theme
) -> Iterator[Shape | Arrow]:
    title = f"{schedule.name}: transfers wait for each other on transport {transport}"
    yield words("title", title, 0.0, 66.0, _TITLE, fontcolor=theme.ink)
    said = "red: waits for, round the circle; dashed: the two ends of one transfer"
    yield words("meaning", said, 0.0, 48.0, _SMALL, fontcolor=theme.muted)
    rows = {int(schedule.rank[index]): box.y for index, box in boxes.items()}
    for rank, y in rows.items():
        yield words(f"rank {rank}", f"rank {rank}", -10.0, y, _FONT, "r", fontcolor=theme.ink)
    yield from boxes.values()
    yield from (meets(boxes[node[0]], boxes[node[1]], theme) for node in cycle if len(node) == 2)
    for node, awaited in pairwise([*cycle, cycle[0]]):
        yield waits_for(*_ends(schedule, boxes, node, awaited), theme)


def _ends(schedule: Schedule, boxes: dict[int, Shape], node: _Node, awaited: _Node) -> tuple[Shape, Shape]:
    """The boxes between which an arrow leads: on one rank, where both have an operation on it."""
    pairs = [(one, other) for one in node for other in awaited]
    one, other = next((pair for pair in pairs if schedule.rank[pair[0]] == schedule.rank[pair[1]]), pairs[0])
    return boxes[one], boxes[other]
