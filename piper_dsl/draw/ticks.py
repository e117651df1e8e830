"""Round numbers for a time axis."""

from __future__ import annotations

import math

__all__ = ["tick_step", "ticks"]

_ROUND = (1, 2, 5, 10)
_ROUNDING = 1e-9
"""Times are sums of durations: a tick this share of a step past the end still belongs to it."""


def tick_step(shortest: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is at least ``shortest`` (positive)."""
    power: float = 10.0 ** math.floor(math.log10(shortest))
    return next(factor * power for factor in _ROUND if factor * power >= shortest * (1 - _ROUNDING))


def ticks(start: float, end: float, step: float) -> list[float]:
    """The multiples of ``step`` from ``start`` to ``end``, both included."""
    first = math.ceil(start / step - _ROUNDING)
    last = math.floor(end / step + _ROUNDING)
    return [index * step for index in range(first, last + 1)]
