"""The measures of a picture: where a time and a rank lie, in points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .boxes import MOST_BOXES, find_grain
from .scene import Scene

__all__ = ["Frame", "find_frame"]

_LEAST_WIDTH, _FITTING_WIDTH, _MOST_WIDTH = 500.0, 1040.0, 14_400.0
_AGGREGATED_WIDTH = 900.0
_GRAIN_WIDTH = 22.0
_SMALLEST_FONT, _LARGEST_FONT = 5.5, 10.0
_DIGIT, _CAPITAL, _PADDING = 0.58, 0.74, 2.5
"""The widths of a digit and a letter as shares of the font size, and what a box keeps free around its label."""
_ARROW_GAP = 11.0
"""What lanes keep between them where arrows lead from one to the next."""


@dataclass(frozen=True)
class Frame:
    """Points per unit of time, the heights of a lane, of the gap below it and of its memory curve, and the font.

    The time ``start`` is at x = 0 and the upper edge of row 0 at y = ``top``. ``aggregated`` says that there
    is no room for single operations.
    """

    scale: float
    start: float
    width: float
    lane: float
    gap: float
    memory: float
    font: float
    aggregated: bool
    top: float = 0.0

    def x(self, time: float) -> float:
        """Where a time lies; what is outside the window lies at its edge."""
        return min(max((time - self.start) * self.scale, 0.0), self.width)

    def bottom(self, row: int) -> float:
        """The lower edge of a lane."""
        return self.top - row * (self.lane + self.memory + self.gap) - self.lane

    def floor(self, rows: int) -> float:
        """The lower edge of the last of some rows."""
        return self.bottom(rows - 1) - self.memory

    def fits(self, label: str, width: float) -> bool:
        """Whether a box of this width has room for a label."""
        letters = sum(_DIGIT if letter.isdigit() else _CAPITAL for letter in label)
        return letters * self.font + _PADDING / 2 <= width


def find_frame(scenes: Sequence[Scene]) -> Frame:
    """One frame for all scenes: wide enough to read every label, no wider than a page where that can be."""
    start, end = min(scene.start for scene in scenes), max(scene.end for scene in scenes)
    digits = max(len(str(max(0, scene.schedule.microbatches - 1))) for scene in scenes)
    grain = min((grain for scene in scenes if (grain := find_grain(scene))), default=1.0)
    grains = (end - start) / grain
    readable = grains * (digits * _DIGIT * _SMALLEST_FONT + _PADDING)
    boxes = sum(len(scene.shown) for scene in scenes)
    aggregated = end > start and (readable > _MOST_WIDTH or boxes > MOST_BOXES)
    width = max(_LEAST_WIDTH, readable, min(_FITTING_WIDTH, grains * _GRAIN_WIDTH))
    if aggregated:
        width = _AGGREGATED_WIDTH
    font = (width / max(grains, 1.0) - _PADDING) / (digits * _DIGIT)
    rows, view = sum(len(scene.ranks) for scene in scenes), scenes[0].view
    lane, gap = _lane(rows)
    return Frame(
        scale=width / ((end - start) or 1.0),
        start=start,
        width=width,
        lane=lane,
        gap=max(gap, _ARROW_GAP) if view.transfers and not aggregated else gap,
        memory=lane * 0.75 if view.memory else 0.0,
        font=min(max(font, _SMALLEST_FONT), _LARGEST_FONT),
        aggregated=aggregated,
    )


def _lane(rows: int) -> tuple[float, float]:
    """Height and gap: the more rows, the flatter."""
    if rows <= 8:
        return 24.0, 5.0
    return (18.0, 4.0) if rows <= 32 else (12.0, 2.0)
