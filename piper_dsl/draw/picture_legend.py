"""The legend: what the colours mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..simulate.timeline import Timeline
from .boxes import find_chunks, kinds_present, lasting_kinds
from .frame import Frame
from .palette import IDLE, paint
from .picture_boxes import MARK
from .shapes import Shape, rectangle, words

__all__ = ["legend_shapes"]

_SWATCH = 12.0
_BETWEEN, _LINE = 16.0, 16.0
_FONT, _LETTER = 9.5, 0.54
_MOST_SHADES = 4


@dataclass(frozen=True)
class _Entry:
    """A row of swatches of one width, and words."""

    name: str
    words: str
    fills: tuple[str, ...]
    swatch: float = _SWATCH
    look: Mapping[str, str] = field(default_factory=dict)

    @property
    def words_at(self) -> float:
        return self.swatch * len(self.fills) + (5.0 if self.fills else 0.0)

    @property
    def width(self) -> float:
        return self.words_at + len(self.words) * _FONT * _LETTER


def legend_shapes(timeline: Timeline, frame: Frame, top: float) -> Iterator[Shape]:
    """The entries from left to right, in as many lines as they need; ``top`` is the upper edge of the first."""
    x, y = 0.0, top - _SWATCH
    for entry in _entries(timeline, frame):
        if x and x + entry.width > frame.width:
            x, y = 0.0, y - _LINE
        for index, fill in enumerate(entry.fills):
            left = x + index * entry.swatch
            name = f"swatch {entry.name} {index}"
            yield rectangle(name, left, y, entry.swatch, _SWATCH, fillcolor=fill, **entry.look)
        yield words(f"legend {entry.name}", entry.words, x + entry.words_at, y + _SWATCH / 2, _FONT)
        x += entry.width + _BETWEEN


def _entries(timeline: Timeline, frame: Frame) -> Iterator[_Entry]:
    """The kinds that can be seen, idle, and how chunks are told apart."""
    chunks = 1 if frame.aggregated else int(find_chunks(timeline.schedule).max(initial=0)) + 1
    shades = [round(index * (chunks - 1) / max(1, _MOST_SHADES - 1)) for index in range(_MOST_SHADES)]
    lasting = lasting_kinds(timeline)
    for kind in lasting if frame.aggregated else kinds_present(timeline.schedule):
        fills = tuple(dict.fromkeys(paint(kind, chunk, chunks).fill for chunk in shades))
        said = f"{kind.name} {kind.description}"
        if kind in lasting:
            yield _Entry(kind.name, said, fills)
        else:
            yield _Entry(kind.name, said, fills[:1], MARK, {"penwidth": "0"})
    yield _Entry("idle", "idle", (IDLE,), look={"color": "#bbbbb5"})
    if chunks > 1:
        yield _Entry("chunks", "darker: a later stage of the rank", ())
