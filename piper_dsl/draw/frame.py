"""The measures of a picture: where a time and a rank lie, in points."""

from __future__ import annotations

from dataclasses import dataclass

from ..simulate.timeline import Timeline
from .boxes import MOST_BOXES, find_grain

__all__ = ["Frame", "find_frame"]

_LEAST_WIDTH, _FITTING_WIDTH, _MOST_WIDTH = 500.0, 1040.0, 14_400.0
_AGGREGATED_WIDTH = 900.0
_GRAIN_WIDTH = 22.0
_SMALLEST_FONT, _LARGEST_FONT = 5.5, 10.0
_DIGIT, _PADDING = 0.58, 2.5
"""The width of a digit as a share of the font size, and what a box keeps free around its label."""


@dataclass(frozen=True)
class Frame:
    """Points per unit of time, the height of a lane and of the gap below it, and the font of the boxes.

    Time 0 is at x = 0 and the upper edge of rank 0 at y = 0. ``aggregated`` says that there is no room
    for single operations.
    """

    scale: float
    width: float
    ranks: int
    lane: float
    gap: float
    font: float
    aggregated: bool

    def x(self, time: float) -> float:
        return time * self.scale

    def bottom(self, rank: int) -> float:
        """The lower edge of a lane."""
        return -rank * (self.lane + self.gap) - self.lane

    @property
    def floor(self) -> float:
        """The lower edge of the last lane."""
        return self.bottom(self.ranks - 1)

    def fits(self, label: str, width: float) -> bool:
        """Whether a box of this width has room for a label."""
        return len(label) * _DIGIT * self.font + _PADDING / 2 <= width


def find_frame(timeline: Timeline) -> Frame:
    """Wide enough to read every label, no wider than a page where that can be."""
    schedule = timeline.schedule
    digits = len(str(max(0, schedule.microbatches - 1)))
    grains = timeline.makespan / (find_grain(timeline) or 1.0)
    readable = grains * (digits * _DIGIT * _SMALLEST_FONT + _PADDING)
    aggregated = timeline.makespan > 0 and (readable > _MOST_WIDTH or len(schedule) > MOST_BOXES)
    width = max(_LEAST_WIDTH, readable, min(_FITTING_WIDTH, grains * _GRAIN_WIDTH))
    if aggregated:
        width = _AGGREGATED_WIDTH
    font = (width / max(grains, 1.0) - _PADDING) / (digits * _DIGIT)
    lane, gap = _lane(schedule.ranks)
    return Frame(
        scale=width / (timeline.makespan or 1.0),
        width=width,
        ranks=schedule.ranks,
        lane=lane,
        gap=gap,
        font=min(max(font, _SMALLEST_FONT), _LARGEST_FONT),
        aggregated=aggregated,
    )


def _lane(ranks: int) -> tuple[float, float]:
    """Height and gap: the more ranks, the flatter."""
    if ranks <= 8:
        return 24.0, 5.0
    return (18.0, 4.0) if ranks <= 32 else (12.0, 2.0)
