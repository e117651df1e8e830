"""What stands below the lanes: the time axis and the legend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..ir.operations import Kind
from .caption import number
from .palette import paint
from .text_lanes import IDLE, Piece
from .text_scale import Scale, Window
from .ticks import ticks

__all__ = ["axis_lines", "legend_lines"]

_BETWEEN = "   "


def axis_lines(scale: Scale, window: Window, prefix: int) -> Iterator[list[Piece]]:
    """The axis of a window and its numbers, ``prefix`` columns in."""
    left, right = scale.column(window.start), scale.column(window.end)
    line, numbers = ["─"] * (right - left), [" "] * (right - left + prefix + len("││"))
    for time in ticks(window.start, window.end, scale.step):
        at, label = scale.column(time) - left, number(time)
        if at < len(line):
            line[at] = "┬"
        if prefix + 1 + at + len(label) <= len(numbers):
            numbers[prefix + 1 + at : prefix + 1 + at + len(label)] = label
    yield [(" " * prefix + "└" + "".join(line) + "┘", "dim")]
    yield [("".join(numbers).rstrip(), "dim")]


def legend_lines(kinds: Iterable[Kind], width: int) -> Iterator[list[Piece]]:
    """A swatch and a word for every kind, and the sign for idle; several lines where they do not fit."""
    line: list[Piece] = []
    for name, words, style in [*map(_entry, kinds), (IDLE, "idle", "dim")]:
        entry = [(name, style), (f" {words}", "")]
        if line and _length(line) + len(_BETWEEN) + _length(entry) > width:
            yield line
            line = []
        line = [*line, (_BETWEEN, ""), *entry] if line else entry
    yield line


def _entry(kind: Kind) -> tuple[str, str, str]:
    look = paint(kind)
    return kind.name, kind.description, f"{look.ink} on {look.fill}"


def _length(line: list[Piece]) -> int:
    return sum(len(characters) for characters, _ in line)
