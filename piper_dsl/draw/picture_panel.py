"""One timeline within a picture: title, lanes, operations and what is drawn over them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .caption import NOTHING_LASTS, heading, shortened, title, wrap
from .differences import difference_facts
from .frame import Frame
from .picture_arrows import arrow_shapes, too_many_arrows
from .picture_bars import BINS_ARE, bar_shapes
from .picture_boxes import box_shapes
from .picture_marks import difference_shapes, head_shapes, path_shapes
from .picture_memory import memory_shapes
from .scene import Scene
from .shapes import LETTER, Arrow, Shape, rectangle, words
from .ticks import tick_step, ticks

__all__ = ["heading_height", "panel_shapes"]

_TITLE, _TEXT, _TINY = 13.0, 9.5, 6.5
_LINE = 14.0
_TICK_DISTANCE = 42.0
_ROOM_FOR_STAGES = 18.0
"""The height of a lane from which on the stages are named below the rank."""


def panel_shapes(scene: Scene, frame: Frame, reference: Scene | None) -> Iterator[Shape | Arrow]:
    """All elements, those behind first; with a ``reference``, what differs from it is marked."""
    yield from _heading(scene, frame, reference)
    yield from _lanes(scene, frame)
    yield from memory_shapes(scene, frame) if scene.view.memory else ()
    if frame.aggregated:
        yield from bar_shapes(scene, frame)
        return
    yield from box_shapes(scene, frame)
    yield from head_shapes(scene, frame)
    yield from difference_shapes(scene, frame, reference) if reference else ()
    yield from path_shapes(scene, frame) if scene.view.critical_path else ()
    yield from arrow_shapes(scene, frame) if scene.view.transfers else ()


def heading_height(scene: Scene, frame: Frame) -> float:
    """The room that title and facts need above the lanes; a line to spare for what is compared."""
    return 30.0 + _LINE * (len(_facts(scene, frame, None)) + 1)


def _heading(scene: Scene, frame: Frame, reference: Scene | None) -> Iterator[Shape]:
    """The title and what came out, above the lanes."""
    theme, lines = scene.view.theme, _facts(scene, frame, reference)
    top = frame.top + 8.0 + _LINE * len(lines)
    name = title(scene.timeline)
    yield words("title", name, 0.0, top + 4.0, _TITLE, fontname="Helvetica-Bold", fontcolor=theme.ink)
    for index, line in enumerate(lines):
        yield words(f"fact {index}", line, 0.0, top - 12.0 - _LINE * index, _TEXT, fontcolor=theme.text)


def _facts(scene: Scene, frame: Frame, reference: Scene | None) -> list[str]:
    lines = wrap(heading(scene), int(frame.width / (_TEXT * LETTER)))
    if reference:
        lines += wrap(difference_facts(scene, reference), int(frame.width / (_TEXT * LETTER)))
    if not scene.duration:
        lines.append(NOTHING_LASTS)
    elif frame.aggregated:
        lines.append(f"{len(scene.shown)} operations are too many or too short to show each: {BINS_ARE}")
        lines += _left_out(scene)
    elif scene.view.transfers and (said := too_many_arrows(scene)):
        lines.append(said)
    return lines


def _left_out(scene: Scene) -> Iterator[str]:
    """What was asked for and needs single operations."""
    asked = {"transfers": scene.view.transfers, "the critical path": scene.view.critical_path}
    if missing := " and ".join(what for what, wanted in asked.items() if wanted):
        yield f"{missing} left out: choose a window"


def _lanes(scene: Scene, frame: Frame) -> Iterator[Shape]:
    """The background of every rank, which shows where it idles, its name, and faint lines at the ticks."""
    theme = scene.view.theme
    for rank, row in scene.row_of.items():
        bottom = frame.bottom(row)
        look = {"fillcolor": theme.lane, "color": theme.lane_edge}
        yield rectangle(f"lane {rank}", 0.0, bottom, frame.width, frame.lane, **look)
        yield from _names(scene, frame, rank, bottom + frame.lane / 2)
    if not scene.duration:
        return
    floor = frame.floor(len(scene.ranks))
    for time in ticks(frame.start, scene.end, tick_step(_TICK_DISTANCE / frame.scale)):
        x, height = frame.x(time), frame.top - floor + frame.gap
        name = f"grid {time:.6g}"
        yield rectangle(name, x - 0.36, floor - frame.gap, 0.72, height, fillcolor=theme.grid, penwidth="0")


def _names(scene: Scene, frame: Frame, rank: int, middle: float) -> Iterator[Shape]:
    """The rank and, where it runs several and there is room, its stages."""
    theme, schedule = scene.view.theme, scene.schedule
    first, end = schedule.offsets[rank : rank + 2]
    stages = np.unique(schedule.stage[first:end]).tolist()
    if len(stages) > 1 and frame.lane >= _ROOM_FOR_STAGES:
        said = f"stages {shortened(stages)}"
        yield words(f"stages {rank}", said, -6.0, middle - 7.0, _TINY, "r", fontcolor=theme.muted)
        middle += 3.5
    yield words(f"rank {rank}", f"rank {rank}", -6.0, middle, min(_TEXT, frame.lane - 2.0), "r", fontcolor=theme.ink)
