"""The timeline as DOT: every element a node at a fixed place, for ``neato -n2``."""

from __future__ import annotations

import graphviz

from ..simulate.timeline import Timeline
from .frame import find_frame
from .picture import picture_shapes
from .shapes import Shape

__all__ = ["dot_source", "find_dpi"]

_POINTS_PER_INCH = 72
_SHARP, _MOST_PIXELS = 192, 16_000


def dot_source(timeline: Timeline) -> str:
    """The picture of a timeline as DOT; the same bytes on every run.

    Operations are nodes named ``2F3 #17``: the key and the index in the schedule. ``pos`` is in points, with
    time 0 at x = 0; ``width`` and ``height`` are in inches, as DOT has it.
    """
    graph = graphviz.Graph(
        "timeline",
        engine="neato",
        graph_attr={
            "layout": "neato",
            "bgcolor": "white",
            "pad": "0.15",
            "inputscale": "72",
            "outputorder": "nodesfirst",
        },
        node_attr={
            "shape": "box",
            "style": "filled",
            "fixedsize": "true",
            "margin": "0",
            "label": "",
            "fontname": "Helvetica",
            "fontsize": _digits(find_frame(timeline).font),
            "penwidth": "0.75",
            "color": "white",
        },
    )
    for shape in picture_shapes(timeline):
        _add(graph, shape)
    return str(graph.source)


def find_dpi(timeline: Timeline) -> int:
    """Pixels per inch for a bitmap: sharp, but of no more than 16,000 pixels."""
    return min(_SHARP, int(_MOST_PIXELS * _POINTS_PER_INCH / (find_frame(timeline).width + 100.0)))


def _add(graph: graphviz.Graph, shape: Shape) -> None:
    graph.node(
        shape.name,
        pos=f"{_digits(shape.x)},{_digits(shape.y)}!",
        width=_digits(shape.width / _POINTS_PER_INCH),
        height=_digits(shape.height / _POINTS_PER_INCH),
        **shape.attributes,
    )


def _digits(value: float) -> str:
    """Four decimals (a thousandth of a millimetre), none of them a trailing zero."""
    text = f"{value:.4f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
