"""Every operation as a box."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.operations import Kind
from ..simulate.timeline import Timeline
from .boxes import find_chunks, find_parts
from .caption import number
from .frame import Frame
from .palette import Paint, paint
from .shapes import Shape, rectangle

__all__ = ["MARK", "box_shapes"]

MARK = 1.5
"""The width of an operation that takes no time, in points."""


def box_shapes(timeline: Timeline, frame: Frame) -> Iterator[Shape]:
    """A box an operation, as wide as it takes; those of an overlapped slot share the height of the lane."""
    schedule = timeline.schedule
    chunk, (part, parts) = find_chunks(schedule), find_parts(schedule)
    chunks = int(chunk.max(initial=0)) + 1
    columns = (schedule.rank, schedule.kind, chunk, part, parts, timeline.start, timeline.end)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for index, (rank, kind, own_chunk, own_part, own_parts, start, end) in enumerate(rows):
        height = frame.lane / own_parts
        bottom = frame.bottom(rank) + height * (own_parts - 1 - own_part)
        look = paint(Kind(kind), own_chunk, chunks)
        yield _box(timeline, frame, index, frame.x(start), bottom, frame.x(end), height, look)


def _box(
    timeline: Timeline, frame: Frame, index: int, left: float, bottom: float, right: float, height: float, look: Paint
) -> Shape:
    operation = timeline.schedule.operation(index)
    name = f"{operation} #{index}"
    when = f"{operation}: {number(float(timeline.start[index]))} to {number(float(timeline.end[index]))}"
    if right <= left:
        return rectangle(name, left - MARK / 2, bottom, MARK, height, fillcolor=look.fill, penwidth="0", tooltip=when)
    label = operation.kind.name if operation.microbatch is None else str(operation.microbatch)
    shown = label if frame.fits(label, right - left) else ""
    return rectangle(
        name, left, bottom, right - left, height, label=shown, fillcolor=look.fill, fontcolor=look.ink, tooltip=when
    )
