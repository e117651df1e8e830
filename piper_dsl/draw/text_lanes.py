"""Operations as text: one line for every stage of a rank, boxes to scale.

::

    rank 0 │F0F1F2F3············B0─ F4B1─
           └ a box is its label and a line almost to its end; a dot is a column in which the rank is idle
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import numpy as np

from ..ir.operations import TRANSFERS, Kind
from ..simulate.timeline import Timeline
from .boxes import find_chunks
from .palette import Paint, paint
from .scene import Scene
from .stuck import Head
from .text_scale import Scale, Window
from .theme import LIGHT

__all__ = ["IDLE", "Box", "Lane", "Piece", "busy_columns", "find_lanes", "lane_pieces"]

Piece = tuple[str, str]
"""Characters and their rich style."""

IDLE = "·"
_BUSY_ELSEWHERE = " "


@dataclass(frozen=True)
class Box:
    """One operation, or several of one stage that overlap; times in the unit of the costs."""

    start: float
    end: float
    label: str
    paint: Paint


@dataclass(frozen=True)
class Lane:
    """A line of a rank: ``stage`` is -1 for a rank that runs nothing."""

    rank: int
    stage: int
    boxes: tuple[Box, ...]


def find_lanes(scene: Scene) -> list[Lane]:
    """The lanes of the ranks shown, rank by rank and stage by stage.

    Zero-length operations have no box, nor have transfers, which run beside the operations.
    """
    schedule, chunk = scene.schedule, find_chunks(scene.schedule)
    chunks = int(chunk.max(initial=0)) + 1
    boxed = scene.lasting[~np.isin(schedule.kind[scene.lasting], TRANSFERS)]
    lanes: list[Lane] = []
    for rank in scene.ranks:
        heads = {head.operation.stage: head for head in scene.heads if head.rank == rank}
        own = schedule.stage[schedule.offsets[rank] : schedule.offsets[rank + 1]]
        mine = boxed[schedule.rank[boxed] == rank]
        for stage in sorted({*own.tolist(), *heads}) or [-1]:
            members = mine[schedule.stage[mine] == stage]
            boxes = _boxes(scene.timeline, members.tolist(), chunk, chunks)
            lanes.append(Lane(rank, stage, (*boxes, *([_stuck(heads[stage])] if stage in heads else ()))))
    return lanes


def _stuck(head: Head) -> Box:
    """An operation that never starts, where it would."""
    return Box(head.time, head.time + head.duration, f"{head.label}!", Paint(LIGHT.alarm, "#ffffff"))


def _boxes(timeline: Timeline, members: list[int], chunk: np.ndarray, chunks: int) -> tuple[Box, ...]:
    schedule = timeline.schedule
    boxes = []
    for _, slot in groupby(members, key=lambda index: int(schedule.slot[index])):
        overlapped = list(slot)
        first = overlapped[0]
        label = "+".join(_label(timeline, index) for index in overlapped)
        look = paint(Kind(int(schedule.kind[first])), int(chunk[first]), chunks)
        boxes.append(Box(float(timeline.start[first]), float(timeline.end[first]), label, look))
    return tuple(boxes)


def _label(timeline: Timeline, index: int) -> str:
    operation = timeline.schedule.operation(index)
    return f"{operation.kind.name}{'' if operation.microbatch is None else operation.microbatch}"


def busy_columns(lanes: list[Lane], scale: Scale, window: Window) -> dict[int, np.ndarray]:
    """Of every rank, the columns of a window in which it works; bool."""
    left, right = scale.column(window.start), scale.column(window.end)
    busy = {lane.rank: np.zeros(right - left, dtype=bool) for lane in lanes}
    for lane in lanes:
        for box in lane.boxes:
            start, end = scale.column(box.start) - left, scale.column(box.end) - left
            busy[lane.rank][max(0, start) : max(0, end)] = True
    return busy


def lane_pieces(lane: Lane, busy: np.ndarray, scale: Scale, window: Window) -> list[Piece]:
    """A lane within a window; ``busy`` says of every column of the window whether the rank works."""
    left, right = scale.column(window.start), scale.column(window.end)
    pieces: list[Piece] = []
    at = left
    for box in lane.boxes:
        start, end = scale.column(box.start), scale.column(box.end)
        if end <= left or start >= right or end <= start:
            continue
        pieces += _gap(busy[at - left : max(start, left) - left])
        text = _box_text(box.label, end - start)[max(0, left - start) : right - start]
        pieces.append((text, f"{box.paint.ink} on {box.paint.fill}"))
        at = min(end, right)
    return pieces + _gap(busy[at - left :])


def _gap(busy: np.ndarray) -> list[Piece]:
    """What stands where a lane has no box: the rank idles, or works on another stage."""
    return [("".join(_BUSY_ELSEWHERE if works else IDLE for works in busy.tolist()), "dim")] if len(busy) else []


def _box_text(label: str, columns: int) -> str:
    """The label, cut to its kind where it does not fit, and a line almost to the end of the box."""
    shown = label if len(label) <= columns else label[0]
    rest = columns - len(shown)
    return shown + "─" * (rest - 1) + " " * (rest > 0)
