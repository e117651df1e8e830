"""The picture of a timeline as shapes: title, lanes, operations, time axis, legend."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..simulate.timeline import Timeline
from .caption import NOTHING_LASTS, facts, number, shortened, title, wrap
from .frame import Frame, find_frame
from .palette import IDLE
from .picture_bars import BINS_ARE, bar_shapes
from .picture_boxes import box_shapes
from .picture_legend import legend_shapes
from .shapes import LETTER, Shape, rectangle, words
from .ticks import tick_step, ticks

__all__ = ["picture_shapes"]

_TITLE, _TEXT, _SMALL, _TINY = 13.0, 9.5, 8.0, 6.5
_LINE = 14.0
_TICK_DISTANCE = 42.0
_GREY, _FAINT = "#666662", "#dcdcd8"
_ROOM_FOR_STAGES = 18.0
"""The height of a lane from which on the stages are named below the rank."""


def picture_shapes(timeline: Timeline) -> Iterator[Shape]:
    """All elements, those behind first."""
    frame = find_frame(timeline)
    yield from _heading(timeline, frame)
    yield from _lanes(timeline, frame)
    yield from _axis(timeline, frame)
    yield from bar_shapes(timeline, frame) if frame.aggregated else box_shapes(timeline, frame)
    yield from legend_shapes(timeline, frame, frame.floor - frame.gap - 24.0)


def _heading(timeline: Timeline, frame: Frame) -> Iterator[Shape]:
    """The title and what came out, above the lanes."""
    lines = wrap(facts(timeline), int(frame.width / (_TEXT * LETTER)))
    if not timeline.makespan:
        lines.append(NOTHING_LASTS)
    elif frame.aggregated:
        lines.append(f"{len(timeline.schedule)} operations are too many to show each: {BINS_ARE}")
    top = 8.0 + _LINE * len(lines)
    yield words("title", title(timeline), 0.0, top + 4.0, _TITLE, fontname="Helvetica-Bold")
    for index, line in enumerate(lines):
        yield words(f"fact {index}", line, 0.0, top - 7.0 - _LINE * index - 5.0, _TEXT, fontcolor="#333333")


def _lanes(timeline: Timeline, frame: Frame) -> Iterator[Shape]:
    """The background of every rank, which shows where it idles, and its name."""
    for rank in range(frame.ranks):
        bottom = frame.bottom(rank)
        yield rectangle(f"lane {rank}", 0.0, bottom, frame.width, frame.lane, fillcolor=IDLE, color=IDLE)
        yield from _names(timeline, frame, rank, bottom + frame.lane / 2)


def _names(timeline: Timeline, frame: Frame, rank: int, middle: float) -> Iterator[Shape]:
    """The rank and, where it runs several and there is room, its stages."""
    first, end = timeline.schedule.offsets[rank : rank + 2]
    stages = np.unique(timeline.schedule.stage[first:end]).tolist()
    if len(stages) > 1 and frame.lane >= _ROOM_FOR_STAGES:
        yield words(f"stages {rank}", f"stages {shortened(stages)}", -6.0, middle - 7.0, _TINY, "r", fontcolor=_GREY)
        middle += 3.5
    yield words(f"rank {rank}", f"rank {rank}", -6.0, middle, min(_TEXT, frame.lane - 2.0), "r")


def _axis(timeline: Timeline, frame: Frame) -> Iterator[Shape]:
    """Ticks with numbers below the lanes and faint lines through them."""
    line = frame.floor - frame.gap - 2.0
    yield rectangle("axis", 0.0, line, frame.width, 1.44, fillcolor="#a8a8a4", penwidth="0")
    if not timeline.makespan:
        return
    for time in ticks(0.0, timeline.makespan, tick_step(_TICK_DISTANCE / frame.scale)):
        x, label = frame.x(time), number(time)
        yield rectangle(f"grid {label}", x - 0.36, line, 0.72, -line, fillcolor=_FAINT, penwidth="0")
        yield rectangle(f"tick {label}", x - 0.36, line - 3.0, 0.72, 3.0, fillcolor=_GREY, penwidth="0")
        yield words(f"time {label}", label, x, line - 9.0, _SMALL, "n", fontcolor=_GREY)
    yield words("time", "time", -6.0, line - 9.0, _SMALL, "r", fontcolor=_GREY)
