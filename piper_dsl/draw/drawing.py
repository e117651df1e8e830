"""Shapes as DOT: every element a node at a fixed place, for ``neato -n2``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import hypot
from typing import TYPE_CHECKING

from .shapes import Arrow, Shape
from .theme import Theme

if TYPE_CHECKING:
    import graphviz

__all__ = ["Drawing", "draw_shapes"]

_POINTS_PER_INCH = 72
_SHARP, _MOST_PIXELS = 192, 16_000
_HEAD = 3.5
"""The length of an arrow head."""


@dataclass(frozen=True)
class Drawing:
    """DOT, and how wide or tall what it draws is about to be, whichever is more, in points."""

    source: str
    extent: float

    @property
    def dpi(self) -> int:
        """Pixels per inch for a bitmap: sharp, but of no more than 16,000 pixels either way."""
        return min(_SHARP, int(_MOST_PIXELS * _POINTS_PER_INCH / (self.extent + 100.0)))


def draw_shapes(shapes: Iterable[Shape | Arrow], theme: Theme, font: float, extent: float) -> Drawing:
    """Shapes and arrows as DOT, the same bytes on every run; ``font`` is the size of what says none.

    ``pos`` is in points; ``width`` and ``height`` of a node are in inches, as DOT has it.
    """
    import graphviz

    graph = graphviz.Digraph(
        "timeline",
        engine="neato",
        graph_attr={
            "layout": "neato",
            "bgcolor": theme.page,
            "pad": "0.15",
            "margin": "0",
            "inputscale": "72",
            "outputorder": "nodesfirst",
            "splines": "line",
        },
        node_attr={
            "shape": "box",
            "style": "filled",
            "fixedsize": "true",
            "margin": "0",
            "label": "",
            "fontname": "Helvetica",
            "fontsize": _digits(font),
            "penwidth": "0.75",
            "color": theme.page,
        },
    )
    for shape in shapes:
        _connect(graph, shape) if isinstance(shape, Arrow) else _add(graph, shape)
    return Drawing(str(graph.source), extent)


def _add(graph: graphviz.Digraph, shape: Shape) -> None:
    graph.node(
        shape.name,
        pos=f"{_digits(shape.x)},{_digits(shape.y)}!",
        width=_digits(shape.width / _POINTS_PER_INCH),
        height=_digits(shape.height / _POINTS_PER_INCH),
        **shape.attributes,
    )


def _connect(graph: graphviz.Digraph, arrow: Arrow) -> None:
    """A spline to the base of an arrow head, whose tip is the end."""
    (x, y), (to_x, to_y) = arrow.tail, arrow.head
    near, far = ((x + (to_x - x) * share, y + (to_y - y) * share + arrow.bend) for share in (1 / 3, 2 / 3))
    length = hypot(to_x - far[0], to_y - far[1]) or _HEAD
    share = min(_HEAD / length, 0.5)
    base = (to_x + (far[0] - to_x) * share, to_y + (far[1] - to_y) * share)
    spline = " ".join(f"{_digits(a)},{_digits(b)}" for a, b in (arrow.tail, near, far, base))
    graph.edge(arrow.source, arrow.target, pos=f"e,{_digits(to_x)},{_digits(to_y)} {spline}", **arrow.attributes)


def _digits(value: float) -> str:
    """Four decimals (a thousandth of a millimetre), none of them a trailing zero."""
    text = f"{value:.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
