"""The legend: what the colours and lines mean, and under which costs the times came out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..ir.operations import Kind
from .boxes import find_chunks, kinds_present, lasting_kinds, writes_transfers
from .caption import SEPARATOR, costs_used, memory_counted
from .differences import find_differences
from .frame import Frame
from .palette import paint
from .picture_boxes import MARK
from .scene import Scene
from .shapes import Shape, rectangle, words
from .theme import Theme

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


def legend_shapes(scenes: Sequence[Scene], frame: Frame, top: float) -> Iterator[Shape]:
    """The entries from left to right, in as many lines as they need; ``top`` is the upper edge of the first."""
    theme = scenes[0].view.theme
    x, y = 0.0, top - _SWATCH
    for entry in _entries(scenes, frame, theme):
        if x and x + entry.width > frame.width:
            x, y = 0.0, y - _LINE
        for index, fill in enumerate(entry.fills):
            left = x + index * entry.swatch
            name = f"swatch {entry.name} {index}"
            yield rectangle(name, left, y, entry.swatch, _SWATCH, fillcolor=fill, **entry.look)
        at = x + entry.words_at
        yield words(f"legend {entry.name}", entry.words, at, y + _SWATCH / 2, _FONT, fontcolor=theme.ink)
        x += entry.width + _BETWEEN
    for index, said in enumerate(dict.fromkeys(SEPARATOR.join(costs_used(scene.timeline)) for scene in scenes)):
        y -= _LINE
        yield words(f"costs {index}", said, 0.0, y + _SWATCH / 2, _FONT, fontcolor=theme.muted)


def _entries(scenes: Sequence[Scene], frame: Frame, theme: Theme) -> Iterator[_Entry]:
    """The kinds that can be seen, idle, how chunks are told apart, and what the lines mean."""
    chunks = max(int(find_chunks(scene.schedule).max(initial=0)) + 1 for scene in scenes)
    chunks = 1 if frame.aggregated else chunks
    shades = [round(index * (chunks - 1) / max(1, _MOST_SHADES - 1)) for index in range(_MOST_SHADES)]
    lasting = sorted({kind for scene in scenes for kind in lasting_kinds(scene)})
    present = sorted({kind for scene in scenes for kind in kinds_present(scene)})
    for kind in lasting if frame.aggregated else present:
        fills = tuple(dict.fromkeys(paint(kind, chunk, chunks, theme).fill for chunk in shades))
        said = f"{kind.name} {kind.description}"
        if kind in lasting:
            yield _Entry(kind.name, said, fills, look={"color": theme.page})
        else:
            yield _Entry(kind.name, said, fills[:1], MARK, {"penwidth": "0"})
    yield _Entry("idle", "idle", (theme.lane,), look={"color": theme.axis})
    if chunks > 1:
        yield _Entry("chunks", "darker: a later stage of the rank", ())
    yield from _lines(scenes, frame, theme)


def _lines(scenes: Sequence[Scene], frame: Frame, theme: Theme) -> Iterator[_Entry]:
    """What is drawn besides boxes."""
    view = scenes[0].view
    if view.memory:
        yield _Entry("memory", f"{memory_counted(scenes[0].timeline)} held", (theme.memory,), look={"penwidth": "0"})
    if frame.aggregated:
        return
    if any(map(writes_transfers, scenes)):
        yield _Entry("transfers", "SEND and RECV", (paint(Kind.SEND_F, theme=theme).fill,), look={"penwidth": "0"})
    if view.critical_path:
        yield _Entry("path", "critical path", ("none",), look=_outlined(theme.path))
    if any(scene.heads for scene in scenes):
        look = {**_outlined(theme.alarm), "style": "dashed"}
        yield _Entry("stuck", "stuck: waits for what never ends", ("none",), look=look)
    differences = [find_differences(scene, scenes[0]) for scene in scenes[1:]]
    if any(found.moved for found in differences):
        yield _Entry(
            "moved", "in another order than in the first", ("none",), look=_outlined(theme.alarm, theme.moved_line)
        )
    if any(found.changed for found in differences):
        yield _Entry("changed", "takes another time", ("none",), look=_outlined(theme.changed, theme.changed_line))


def _outlined(color: str, line: str = "") -> dict[str, str]:
    return {"style": line, "color": color, "penwidth": "1.6"}
