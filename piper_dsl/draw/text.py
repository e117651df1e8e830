"""The timeline as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..simulate.timeline import Timeline
from .bins import busy_shares
from .boxes import MOST_BOXES, find_grain, lasting_kinds
from .caption import NOTHING_LASTS, facts, number, title, wrap
from .text_bins import bin_pieces
from .text_frame import axis_lines, legend_lines
from .text_lanes import Lane, Piece, busy_columns, find_lanes, lane_pieces
from .text_scale import Scale, fit_all, fit_readable

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["timeline_text"]

_MOST_LINES = 120
_LEAST_COLUMNS = 16
_AROUND_LANES = 3
"""Lines of a window besides its lanes: the axis, its numbers and an empty one."""


def timeline_text(timeline: Timeline, width: int = 100) -> Text:
    """The timeline in at most ``width`` columns (but no fewer than some 40), coloured; ``.plain`` is without colour.

    One lane a rank, and in it one line a stage; boxes to scale. What is too long for one line is cut into
    windows of time; what would take more than 120 lines, or has more than 20,000 operations, shows busy
    shares instead. Either is said.
    """
    from rich.text import Text

    lines = [Text.assemble(*line) for line in _lines(timeline, width)]
    text = Text("\n").join(lines)
    text.no_wrap, text.overflow = True, "ignore"
    return text


def _lines(timeline: Timeline, width: int) -> Iterator[list[Piece]]:
    yield [(title(timeline), "bold")]
    yield from ([(line, "")] for line in wrap(facts(timeline), width))
    yield []
    if not timeline.makespan:
        yield [(NOTHING_LASTS, "italic")]
        return
    scale = _readable(timeline, width) if len(timeline.schedule) <= MOST_BOXES else None
    yield from _detailed(timeline, scale, width) if scale else _aggregated(timeline, width)


def _readable(timeline: Timeline, width: int) -> Scale | None:
    """A scale at which labels can be read; None where that takes too many lines."""
    schedule = timeline.schedule
    lanes = sum(max(1, len(np.unique(row))) for row in np.split(schedule.stage, schedule.offsets[1:-1]))
    label = 1 + len(str(max(0, schedule.microbatches - 1)))
    columns = _columns(width, _prefix(timeline, lanes > schedule.ranks))
    scale = fit_readable(timeline.makespan, find_grain(timeline), label, columns)
    return scale if len(scale.windows) * (lanes + _AROUND_LANES) <= _MOST_LINES else None


def _columns(width: int, prefix: int) -> int:
    return max(_LEAST_COLUMNS, width - prefix - len("││"))


def _prefix(timeline: Timeline, several: bool) -> int:
    """The columns before a lane; ``several`` says that some rank runs several stages."""
    rank = len(f"rank {timeline.schedule.ranks - 1} ")
    return rank + len(f"stage {timeline.schedule.stages - 1} ") if several else rank


def _detailed(timeline: Timeline, scale: Scale, width: int) -> Iterator[list[Piece]]:
    """Every operation, window by window."""
    lanes = find_lanes(timeline)
    several = len(lanes) > timeline.schedule.ranks
    prefix = _prefix(timeline, several)
    for window in scale.windows:
        busy = busy_columns(lanes, scale, window)
        for above, lane in zip([None, *lanes], lanes, strict=False):
            name = _name(lane, above, several).ljust(prefix)
            yield [(name, "bold"), ("│", "dim"), *lane_pieces(lane, busy[lane.rank], scale, window), ("│", "dim")]
        yield from axis_lines(scale, window, prefix)
        yield []
    yield from legend_lines(lasting_kinds(timeline), width)
    yield from ([(line, "italic")] for line in wrap(_remarks(timeline, scale, several), width, "; "))


def _name(lane: Lane, above: Lane | None, several: bool) -> str:
    """``rank 0 stage 4``, without the rank where the line above has said it."""
    rank = f"rank {lane.rank} "
    if above and above.rank == lane.rank:
        rank = " " * len(rank)
    return f"{rank}stage {lane.stage}" if several and lane.stage >= 0 else rank


def _remarks(timeline: Timeline, scale: Scale, several: bool) -> Iterator[str]:
    """How to read the picture, as far as its words do not say it."""
    labelled = np.flatnonzero((timeline.end > timeline.start) & (timeline.schedule.microbatch >= 0))
    for first in map(timeline.schedule.operation, labelled[:1].tolist()):
        yield f"{first.kind.name}{first.microbatch} is the {first.kind.description} of microbatch {first.microbatch}"
    if several:
        yield "blank: the rank works on another of its stages"
    if len(scale.windows) > 1:
        yield f"time is cut into {len(scale.windows)} windows"


def _aggregated(timeline: Timeline, width: int) -> Iterator[list[Piece]]:
    """Busy shares: a line a rank, a bin a column."""
    prefix = _prefix(timeline, several=False)
    columns = _columns(width, prefix)
    scale = fit_all(timeline.makespan, columns)
    for rank, shares in enumerate(busy_shares(timeline, columns)):
        yield [(f"rank {rank} ".ljust(prefix), "bold"), ("│", "dim"), *bin_pieces(shares), ("│", "dim")]
    yield from axis_lines(scale, scale.windows[0], prefix)
    yield []
    yield from legend_lines(lasting_kinds(timeline), width)
    said = (
        f"{len(timeline.schedule)} operations are too many to show each",
        f"a column is {number(1 / scale.per_unit)} of time",
        "its height is the busy share",
        "its colour is the main kind",
    )
    yield from ([(line, "italic")] for line in wrap(said, width, "; "))
