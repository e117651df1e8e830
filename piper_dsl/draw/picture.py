"""The picture of timelines as shapes: for each title and lanes, for all one time axis and one legend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from .caption import number
from .drawing import Drawing, draw_shapes
from .frame import Frame, find_frame
from .picture_legend import legend_shapes
from .picture_panel import heading_height, panel_shapes
from .scene import Scene
from .shapes import LETTER, Arrow, Shape, rectangle, words
from .ticks import tick_step, ticks

__all__ = ["draw_picture"]

_SMALL = 8.0
_TICK_DISTANCE = 42.0
_BETWEEN = 18.0
"""Free space between two panels."""


def draw_picture(scenes: Sequence[Scene]) -> Drawing:
    """The picture of timelines.

    Operations are nodes named ``2F3 #17``: the key and the index in the schedule. The start of the window lies
    at x = 0.
    """
    frame = find_frame(scenes)
    panels = list(_panels(scenes, frame))
    floor = panels[-1].floor(len(scenes[-1].ranks))
    shapes = _shapes(scenes, frame, panels, floor)
    return draw_shapes(shapes, scenes[0].view.theme, frame.font, max(frame.width, -floor))


def _shapes(scenes: Sequence[Scene], frame: Frame, panels: Sequence[Frame], floor: float) -> Iterator[Shape | Arrow]:
    """All elements, those behind first; ``floor`` is the lower edge of the last lane."""
    for index, (scene, panel) in enumerate(zip(scenes, panels, strict=True)):
        for shape in panel_shapes(scene, panel, scenes[0] if index else None):
            yield shape.within(f"panel {index} ") if index else shape
    yield from _axis(scenes[0], frame, max(scene.end for scene in scenes), floor - frame.gap - 2.0)
    yield from legend_shapes(scenes, frame, floor - frame.gap - 24.0)


def _panels(scenes: Sequence[Scene], frame: Frame) -> Iterator[Frame]:
    """The frame of every scene, each below the one before."""
    top = 0.0
    for index, scene in enumerate(scenes):
        if index:
            top -= heading_height(scene, frame)
        yield replace(frame, top=top)
        top = replace(frame, top=top).floor(len(scene.ranks)) - _BETWEEN


def _axis(scene: Scene, frame: Frame, end: float, line: float) -> Iterator[Shape]:
    """Ticks with numbers below the lanes."""
    theme = scene.view.theme
    yield rectangle("axis", 0.0, line, frame.width, 1.0, fillcolor=theme.axis, penwidth="0")
    if end <= frame.start:
        return
    found = ticks(frame.start, end, tick_step(_TICK_DISTANCE / frame.scale))
    for time in found:
        x, label = frame.x(time), number(time)
        yield rectangle(f"tick {label}", x - 0.36, line - 3.0, 0.72, 3.0, fillcolor=theme.muted, penwidth="0")
        yield words(f"time {label}", label, x, line - 9.0, _SMALL, "n", fontcolor=theme.muted)
    aside = max(6.0, 3.0 + _SMALL * LETTER * len(number(found[0])) / 2 - frame.x(found[0])) if found else 6.0
    yield words("time", "time", -aside, line - 9.0, _SMALL, "r", fontcolor=theme.muted)
