"""Outlines over the boxes: the critical path, where ranks are stuck, and what differs from another timeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .differences import find_differences
from .frame import Frame
from .picture_boxes import box_name
from .scene import Scene
from .shapes import Shape, rectangle

__all__ = ["difference_shapes", "head_shapes", "path_shapes"]


def path_shapes(scene: Scene, frame: Frame) -> Iterator[Shape]:
    """The boxes of the critical path."""
    shown = set(scene.shown.tolist())
    path = (index for index in scene.timeline.critical_indices if index in shown)
    return _outlines(scene, frame, "critical", path, scene.view.theme.path)


def difference_shapes(scene: Scene, frame: Frame, reference: Scene) -> Iterator[Shape]:
    """The boxes that run after another operation, or take longer or shorter, than in the reference."""
    found, theme = find_differences(scene, reference), scene.view.theme
    yield from _outlines(scene, frame, "moved", found.moved, theme.alarm, theme.moved_line)
    yield from _outlines(scene, frame, "slower or faster", found.changed, theme.changed, theme.changed_line)


def _outlines(
    scene: Scene, frame: Frame, what: str, indices: Iterable[int], color: str, line: str = ""
) -> Iterator[Shape]:
    for index in indices:
        left, right = (frame.x(float(time[index])) for time in (scene.timeline.start, scene.timeline.end))
        bottom = frame.bottom(scene.row_of[int(scene.schedule.rank[index])])
        look = {"style": line, "fillcolor": "none", "color": color, "penwidth": "1.6"}
        name = f"{what} {box_name(scene, index)}"
        yield rectangle(name, left + 0.4, bottom + 0.4, max(right - left - 0.8, 1.0), frame.lane - 0.8, **look)


def head_shapes(scene: Scene, frame: Frame) -> Iterator[Shape]:
    """The operations that never start, dashed, from when their rank has been free."""
    alarm = scene.view.theme.alarm
    for head in scene.heads:
        left, right = frame.x(head.time), frame.x(head.time + head.duration)
        if left >= frame.width:
            continue
        look = {"style": "dashed", "fillcolor": "none", "color": alarm, "fontcolor": alarm, "penwidth": "1.2"}
        bottom = frame.bottom(scene.row_of[head.rank])
        name = f"stuck {head.operation} on rank {head.rank}"
        width = max(right - left, 4.0)
        shown = head.label if frame.fits(head.label, width) else ""
        yield rectangle(name, left, bottom, width, frame.lane, label=shown, tooltip=head.reason, **look)
