"""Every operation as a box."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..ir.operations import TRANSFERS, Kind
from .boxes import find_chunks, find_parts
from .caption import number
from .frame import Frame
from .palette import Paint, paint
from .scene import Scene
from .shapes import Shape, rectangle

__all__ = ["MARK", "box_name", "box_shapes"]

MARK = 1.5
"""The width of an operation that takes no time, in points."""
_TRANSFER_SHARE = 0.14
"""The share of a lane that transfers take which the schedule writes: they run beside the operations."""


def box_name(scene: Scene, index: int) -> str:
    """The name of an operation's shape."""
    return f"{scene.schedule.operation(index)} #{index}"


def box_shapes(scene: Scene, frame: Frame) -> Iterator[Shape]:
    """A box an operation, as wide as it takes; those of an overlapped slot share the height of one."""
    schedule, timeline, shown = scene.schedule, scene.timeline, scene.shown
    chunk, (part, parts) = find_chunks(schedule), find_parts(schedule)
    chunks = int(chunk.max(initial=0)) + 1
    # Transfers lie over the boxes that they run beside.
    shown = shown[np.argsort(np.isin(schedule.kind[shown], TRANSFERS), kind="stable")]
    columns = (schedule.rank, schedule.kind, chunk, part, parts, timeline.start, timeline.end)
    rows = zip(shown.tolist(), *(column[shown].tolist() for column in columns), strict=True)
    for index, rank, kind, own_chunk, own_part, own_parts, start, end in rows:
        bottom, height = frame.bottom(scene.row_of[rank]), frame.lane / own_parts
        if kind in TRANSFERS:
            height = frame.lane * _TRANSFER_SHARE
        else:
            bottom += height * (own_parts - 1 - own_part)
        look = paint(Kind(kind), own_chunk, chunks, scene.view.theme)
        if end <= start:
            yield _mark(scene, index, frame.x(start), bottom, height, look)
            continue
        yield _box(scene, frame, index, (frame.x(start), bottom, frame.x(end), height), look, own_parts > 1)
        if own_parts > 1 and own_part == 0 and kind not in TRANSFERS:
            yield _outline(scene, index, frame.x(start), frame.bottom(scene.row_of[rank]), frame.x(end), frame.lane)


def _box(
    scene: Scene, frame: Frame, index: int, at: tuple[float, float, float, float], look: Paint, shared: bool
) -> Shape:
    """A box between left and right; the halves of a slot have no border of their own."""
    left, bottom, right, height = at
    operation = scene.schedule.operation(index)
    label = operation.kind.name if operation.microbatch is None else str(operation.microbatch)
    fits = frame.fits(label, right - left) and operation.kind not in TRANSFERS
    border = {"penwidth": "0"} if shared else {}
    return rectangle(
        box_name(scene, index),
        left,
        bottom,
        right - left,
        height,
        label=label if fits else "",
        fillcolor=look.fill,
        fontcolor=look.ink,
        tooltip=_when(scene, index),
        **border,
    )


def _outline(scene: Scene, index: int, left: float, bottom: float, right: float, height: float) -> Shape:
    """The one border around the halves of an overlapped slot."""
    return rectangle(
        f"slot of {box_name(scene, index)}", left, bottom, right - left, height, style="", fillcolor="none"
    )


def _mark(scene: Scene, index: int, x: float, bottom: float, height: float, look: Paint) -> Shape:
    name, when = box_name(scene, index), _when(scene, index)
    return rectangle(name, x - MARK / 2, bottom, MARK, height, fillcolor=look.fill, penwidth="0", tooltip=when)


def _when(scene: Scene, index: int) -> str:
    start, end = float(scene.timeline.start[index]), float(scene.timeline.end[index])
    return f"{scene.schedule.operation(index)}: {number(start)} to {number(end)}"
