"""Timelines as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..simulate.timeline import Timeline
from .bins import busy_shares
from .boxes import MOST_BOXES, find_grain, lasting_kinds
from .caption import NOTHING_LASTS, SEPARATOR, costs_used, heading, number, title, wrap
from .differences import difference_facts
from .scene import Scene, find_scene
from .text_bins import bin_pieces
from .text_frame import axis_lines, legend_lines
from .text_lanes import Lane, Piece, busy_columns, find_lanes, lane_pieces
from .text_scale import Scale, fit_all, fit_readable
from .view import View

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["WIDTH", "scenes_text", "timeline_text"]

WIDTH = 100
"""The columns of a text that is not for a terminal."""
_MOST_LINES = 120
_LEAST_COLUMNS = 16
_AROUND_LANES = 3
"""Lines of a window besides its lanes: the axis, its numbers and an empty one."""


def timeline_text(timeline: Timeline, width: int = WIDTH, view: View | None = None) -> Text:
    """The timeline in at most ``width`` columns (but no fewer than some 40), coloured; ``.plain`` is without colour.

    One lane a rank, and in it one line a stage; boxes to scale. What is too long for one line is cut into
    windows of time; what would take more than 120 lines, or has more than 10,000 operations, shows busy
    shares instead. Either is said. Of the view, only the window counts.
    """
    return scenes_text([find_scene(timeline, view or View())], width)


def scenes_text(scenes: Sequence[Scene], width: int = WIDTH) -> Text:
    """The same for several timelines, one below the other, to one scale."""
    from rich.text import Text

    lines = [Text.assemble(*line) for line in _all_lines(scenes, width)]
    text = Text("\n").join(lines)
    text.no_wrap, text.overflow = True, "ignore"
    return text


def _all_lines(scenes: Sequence[Scene], width: int) -> Iterator[list[Piece]]:
    scale = _common_scale(scenes, width)
    for index, scene in enumerate(scenes):
        if index:
            yield []
        yield from _lines(scene, scale, width, scenes[0] if index else None)


def _lines(scene: Scene, scale: Scale | None, width: int, reference: Scene | None) -> Iterator[list[Piece]]:
    yield [(title(scene.timeline), "bold")]
    yield from ([(line, "")] for line in wrap(heading(scene), width))
    yield from ([(line, "")] for line in (wrap(difference_facts(scene, reference), width) if reference else ()))
    yield []
    if not scene.duration:
        yield [(NOTHING_LASTS, "italic")]
        return
    yield from _detailed(scene, scale, width) if scale else _aggregated(scene, width)
    yield from ([(line, "")] for line in wrap([SEPARATOR.join(costs_used(scene.timeline))], width))


def _common_scale(scenes: Sequence[Scene], width: int) -> Scale | None:
    """A scale at which the labels of all can be read; None where that takes too many lines."""
    start, end = min(scene.start for scene in scenes), max(scene.end for scene in scenes)
    if end <= start or sum(len(scene.shown) for scene in scenes) > MOST_BOXES:
        return None
    lanes = sum(_count_lanes(scene) for scene in scenes)
    prefix = max(_prefix(scene, _count_lanes(scene) > len(scene.ranks)) for scene in scenes)
    label = 1 + max(len(str(max(0, scene.schedule.microbatches - 1))) for scene in scenes)
    grain = min((grain for scene in scenes if (grain := find_grain(scene))), default=end - start)
    columns = _columns(width, prefix)
    if (end - start) * label > grain * columns * _MOST_LINES:
        return None  # before windows are made: a rank that starts days after another would have millions
    scale = fit_readable(start, end, grain, label, columns)
    return scale if len(scale.windows) * (lanes + _AROUND_LANES) <= _MOST_LINES else None


def _count_lanes(scene: Scene) -> int:
    rows = np.split(scene.schedule.stage, scene.schedule.offsets[1:-1])
    return sum(max(1, len(np.unique(rows[rank]))) for rank in scene.ranks)


def _columns(width: int, prefix: int) -> int:
    return max(_LEAST_COLUMNS, width - prefix - len("││"))


def _prefix(scene: Scene, several: bool) -> int:
    """The columns before a lane; ``several`` says that some rank runs several stages."""
    rank = len(f"rank {max(scene.ranks)} ")
    return rank + len(f"stage {scene.schedule.stages - 1} ") if several else rank


def _detailed(scene: Scene, scale: Scale, width: int) -> Iterator[list[Piece]]:
    """Every operation, window by window."""
    lanes = find_lanes(scene)
    several = len(lanes) > len(scene.ranks)
    prefix = _prefix(scene, several)
    for window in scale.windows:
        busy = busy_columns(lanes, scale, window)
        for above, lane in zip([None, *lanes], lanes, strict=False):
            name = _name(lane, above, several).ljust(prefix)
            yield [(name, "bold"), ("│", "dim"), *lane_pieces(lane, busy[lane.rank], scale, window), ("│", "dim")]
        yield from axis_lines(scale, window, prefix)
        yield []
    yield from legend_lines(lasting_kinds(scene), width)
    yield from ([(line, "italic")] for line in wrap(_remarks(scene, scale, several), width, "; "))


def _name(lane: Lane, above: Lane | None, several: bool) -> str:
    """``rank 0 stage 4``, without the rank where the line above has said it."""
    rank = f"rank {lane.rank} "
    if above and above.rank == lane.rank:
        rank = " " * len(rank)
    return f"{rank}stage {lane.stage}" if several and lane.stage >= 0 else rank


def _remarks(scene: Scene, scale: Scale, several: bool) -> Iterator[str]:
    """How to read the picture, as far as its words do not say it."""
    labelled = scene.lasting[scene.schedule.microbatch[scene.lasting] >= 0]
    for first in map(scene.schedule.operation, labelled[:1].tolist()):
        yield f"{first.kind.name}{first.microbatch} is the {first.kind.description} of microbatch {first.microbatch}"
    if several:
        yield "blank: the rank works on another of its stages"
    if scene.heads:
        yield "!: stuck, waits for what never ends"
    if len(scale.windows) > 1:
        yield f"time is cut into {len(scale.windows)} windows"


def _aggregated(scene: Scene, width: int) -> Iterator[list[Piece]]:
    """Busy shares: a line a rank, a bin a column."""
    prefix = _prefix(scene, several=False)
    columns = _columns(width, prefix)
    scale = fit_all(scene.start, scene.end, columns)
    for rank, shares in zip(scene.ranks, busy_shares(scene, columns), strict=True):
        yield [(f"rank {rank} ".ljust(prefix), "bold"), ("│", "dim"), *bin_pieces(shares), ("│", "dim")]
    yield from axis_lines(scale, scale.windows[0], prefix)
    yield []
    yield from legend_lines(lasting_kinds(scene), width)
    said = (
        f"{len(scene.shown)} operations are too many or too short to show each",
        f"a column is {number(1 / scale.per_unit)} of time",
        "its height is the busy share",
        "its colour is the main kind",
    )
    yield from ([(line, "italic")] for line in wrap(said, width, "; "))
