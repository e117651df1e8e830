"""The elements of a picture: rectangles, words and arrows at fixed places, in points; y grows upwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

__all__ = ["LETTER", "Arrow", "Shape", "rectangle", "words"]

LETTER, _BOLD, _LINE = 0.56, 0.72, 1.6
"""The width of a letter and the height of a line, generous shares of the font size: fonts differ by machine.

Graphviz moves words that are wider than their shape, also where they start at its edge."""


@dataclass(frozen=True)
class Shape:
    """A node of the DOT source: its centre, its size and what else Graphviz should know."""

    name: str
    x: float
    y: float
    width: float
    height: float
    attributes: Mapping[str, str] = field(default_factory=dict)

    def within(self, panel: str) -> Shape:
        """The same, its name told apart from those of other panels."""
        return replace(self, name=f"{panel}{self.name}")


@dataclass(frozen=True)
class Arrow:
    """An edge of the DOT source from one shape to another, between two points (x, y).

    It is straight, but for ``bend``: how far its middle is pulled up, or down where negative.
    """

    source: str
    target: str
    tail: tuple[float, float]
    head: tuple[float, float]
    attributes: Mapping[str, str] = field(default_factory=dict)
    bend: float = 0.0

    def within(self, panel: str) -> Arrow:
        """The same between the shapes of a panel."""
        return replace(self, source=f"{panel}{self.source}", target=f"{panel}{self.target}")


def rectangle(name: str, left: float, bottom: float, width: float, height: float, **attributes: str) -> Shape:
    """A filled box by its lower left corner."""
    return Shape(name, left + width / 2, bottom + height / 2, width, height, attributes)


def words(name: str, text: str, x: float, y: float, size: float, align: str = "l", **attributes: str) -> Shape:
    """One line of text that starts (``align`` l), ends (r) or is centred (n) at ``x``; ``y`` is its middle."""
    letter = _BOLD if attributes.get("fontname", "").endswith("Bold") else LETTER
    width = (len(text) + 1) * size * letter
    centre = x + {"l": width / 2, "r": -width / 2, "n": 0.0}[align]
    look = {
        "label": f"{_escaped(text)}\\{align}",
        "fontsize": f"{size:g}",
        "style": "",
        "penwidth": "0",
        "color": "none",
    }
    return Shape(name, centre, y, width, size * _LINE, {**look, **attributes})


def _escaped(text: str) -> str:
    """Graphviz reads backslashes as commands and ampersands as entities."""
    return text.replace("\\", "\\\\").replace("&", "&amp;")
