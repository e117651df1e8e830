"""The looks of a picture: on a light screen, on a dark one, in print.

The kinds that fill a schedule lie in separate bands of lightness (in L* of CIELAB: F 86 to 74, I 71 to 62,
B 56 to 45, W 41 to 29), so that they stay apart on a grey printer and for colour-blind readers.
Within its band, a kind gets darker from the first chunk of a rank to the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ..ir.operations import Kind

__all__ = ["DARK", "LIGHT", "PRINT", "THEMES", "Band", "Theme"]

Band = tuple[int, int]
"""The colours of the first and the last chunk of a rank, as 0xRRGGBB."""

_COLOURS = MappingProxyType(
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
_GREYS = MappingProxyType(
    {
        **_COLOURS,
        Kind.F: (0xD6D6D6, 0xB9B9B9),
        Kind.I: (0xADADAD, 0x979797),
        Kind.B: (0x868686, 0x6B6B6B),
        Kind.W: (0x606060, 0x444444),
        Kind.R: (0xF2F2F2, 0xE6E6E6),
        Kind.OPT: (0x000000, 0x000000),
    }
)
_ON_DARK = MappingProxyType({**_COLOURS, Kind.OPT: (0xF2F2F2, 0xF2F2F2), Kind.REDUCE_GRAD: (0x9A9A9A, 0x848484)})


@dataclass(frozen=True, eq=False)
class Theme:
    """Colours as ``#rrggbb``, those of the kinds as bands.

    ``lane`` shows where a rank idles and ``lane_edge`` outlines it; ``path`` outlines the critical path,
    ``alarm`` what is stuck or in another order, ``changed`` what takes another time; ``memory`` fills the
    curves of activations. ``moved_line`` and ``changed_line`` are styles of Graphviz for the last two outlines,
    where colours do not tell them apart.
    """

    name: str
    bands: Mapping[Kind, Band]
    page: str
    lane: str
    lane_edge: str
    ink: str
    text: str
    muted: str
    axis: str
    grid: str
    arrow: str
    path: str
    alarm: str
    changed: str
    memory: str
    moved_line: str = ""
    changed_line: str = ""


LIGHT = Theme(
    name="light",
    bands=_COLOURS,
    page="#ffffff",
    lane="#f5f5f3",
    lane_edge="#f5f5f3",
    ink="#000000",
    text="#333333",
    muted="#666662",
    axis="#a8a8a4",
    grid="#dcdcd8",
    arrow="#55555a",
    path="#7b1fa2",
    alarm="#d00032",
    changed="#006d5b",
    memory="#9db8a0",
)
DARK = Theme(
    name="dark",
    bands=_ON_DARK,
    page="#121417",
    lane="#22262b",
    lane_edge="#22262b",
    ink="#f4f4f2",
    text="#c9ccd1",
    muted="#9aa0a8",
    axis="#6b7178",
    grid="#3a4047",
    arrow="#b9bec6",
    path="#ff6ad5",
    alarm="#ff5a5f",
    changed="#4dd9c0",
    memory="#5f8a68",
)
PRINT = replace(
    LIGHT,
    name="print",
    bands=_GREYS,
    lane="#ffffff",
    lane_edge="#c4c4c4",
    text="#000000",
    muted="#444444",
    axis="#666666",
    grid="#d8d8d8",
    arrow="#444444",
    path="#000000",
    alarm="#000000",
    changed="#000000",
    memory="#c9c9c9",
    moved_line="dashed",
    changed_line="dotted",
)
THEMES = MappingProxyType({theme.name: theme for theme in (LIGHT, DARK, PRINT)})
"""By name."""
