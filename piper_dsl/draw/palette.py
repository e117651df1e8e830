"""The colour of a box, by kind and chunk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ..ir.operations import Kind
from .theme import LIGHT, Theme

__all__ = ["Paint", "paint"]

_TRANSFER = (0xA8A8A8, 0x949494)
_DARK_BELOW = 0.27
"""White letters below this luminance, black ones above."""


@dataclass(frozen=True)
class Paint:
    """The colour of a box and of the letters on it, as ``#rrggbb``."""

    fill: str
    ink: str


@cache
def paint(kind: Kind, chunk: int = 0, chunks: int = 1, theme: Theme = LIGHT) -> Paint:
    """The colours of a kind on the ``chunk``-th of ``chunks`` stages of a rank."""
    first, last = (_channels(color) for color in theme.bands.get(kind, _TRANSFER))
    share = chunk / max(1, chunks - 1)
    mixed = [round(a + (b - a) * share) for a, b in zip(first, last, strict=True)]
    luminance = sum(weight * (value / 255) ** 2.2 for weight, value in zip((0.21, 0.72, 0.07), mixed, strict=True))
    return Paint("#{:02x}{:02x}{:02x}".format(*mixed), "#ffffff" if luminance < _DARK_BELOW else "#111111")


def _channels(color: int) -> tuple[int, int, int]:
    return color >> 16, color >> 8 & 0xFF, color & 0xFF
