"""Colours by kind and chunk.

The kinds that fill a schedule lie in separate bands of lightness (F 86 to 74, I 71 to 62, B 56 to 45,
W 41 to 29, in L* of CIELAB), so that they stay apart on a grey printer and for colour-blind readers.
Within its band, a kind gets darker from the first chunk of a rank to the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from ..ir.operations import Kind

__all__ = ["IDLE", "Paint", "paint"]

IDLE = "#f5f5f3"
"""The background of a lane."""

_BANDS = MappingProxyType(
    {
        Kind.F: (0xBCDAF4, 0x8DBBE5),
        Kind.I: (0xE0A43C, 0xC88C2C),
        Kind.B: (0xCF6A3C, 0xAD5029),
        Kind.W: (0x2D6A61, 0x1C4C46),
        Kind.R: (0xCFC4DE, 0xB3A3C8),
        Kind.OPT: (0x1A1A1A, 0x1A1A1A),
        Kind.REDUCE_GRAD: (0x6E6E6E, 0x585858),
        Kind.UNSHARD: (0xC8C8B8, 0xB0B09E),
        Kind.RESHARD: (0xDADACE, 0xC8C8B8),
    }
)
_TRANSFER = (0xA8A8A8, 0x949494)
_DARK_BELOW = 0.27
"""White letters below this luminance, black ones above."""


@dataclass(frozen=True)
class Paint:
    """The colour of a box and of the letters on it, as ``#rrggbb``."""

    fill: str
    ink: str


def paint(kind: Kind, chunk: int = 0, chunks: int = 1) -> Paint:
    """The colours of a kind on the ``chunk``-th of ``chunks`` stages of a rank."""
    first, last = (_channels(color) for color in _BANDS.get(kind, _TRANSFER))
    share = chunk / max(1, chunks - 1)
    mixed = [round(a + (b - a) * share) for a, b in zip(first, last, strict=True)]
    luminance = sum(weight * (value / 255) ** 2.2 for weight, value in zip((0.21, 0.72, 0.07), mixed, strict=True))
    return Paint("#{:02x}{:02x}{:02x}".format(*mixed), "#ffffff" if luminance < _DARK_BELOW else "#111111")


def _channels(color: int) -> tuple[int, int, int]:
    return color >> 16, color >> 8 & 0xFF, color & 0xFF
