"""How much time one column of text stands for, and where long schedules are cut."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .ticks import tick_step

__all__ = ["Scale", "Window", "fit_all", "fit_readable"]

_WIDEST_GRAIN = 6
_TICK_COLUMNS = 8
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Window:
    """A stretch of time drawn as one block; ``start`` and ``end`` in the unit of the costs."""

    start: float
    end: float


@dataclass(frozen=True)
class Scale:
    """Columns per unit of time, the time between ticks, and the windows from left to right."""

    per_unit: float
    step: float
    windows: tuple[Window, ...]

    def column(self, time: float) -> int:
        """The nearest column edge of a time, counted from time 0."""
        return math.floor(time * self.per_unit + 0.5 + _ROUNDING)


def fit_readable(start: float, end: float, grain: float, label: int, columns: int) -> Scale:
    """The widest scale that shows all from ``start`` to ``end`` in ``columns``, else windows at the narrowest
    readable one.

    ``grain`` is the duration that must hold ``label`` characters; it and ``end - start`` are positive.
    """
    for width in range(_WIDEST_GRAIN, label - 1, -1):
        if (end - start) * width / grain <= columns + _ROUNDING:
            return _whole(start, end, width / grain)
    per_unit = label / grain
    step = tick_step(_TICK_COLUMNS / per_unit)
    length = max(1, math.floor(columns / (per_unit * step) + _ROUNDING)) * step
    starts = [start + length * index for index in range(math.ceil((end - start) / length - _ROUNDING))]
    return Scale(per_unit, step, tuple(Window(begin, min(begin + length, end)) for begin in starts))


def fit_all(start: float, end: float, columns: int) -> Scale:
    """All of the time in exactly ``columns``, however narrow that makes an operation."""
    return _whole(start, end, columns / (end - start))


def _whole(start: float, end: float, per_unit: float) -> Scale:
    return Scale(per_unit, tick_step(_TICK_COLUMNS / per_unit), (Window(start, end),))
