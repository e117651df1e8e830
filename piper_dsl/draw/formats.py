"""One file format an ending: how timelines and graphs become the bytes of a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from .drawing import Drawing
from .errors import DrawError
from .program import render
from .scene import Scene
from .text import scenes_text

if TYPE_CHECKING:
    from .html import Sweep

__all__ = [
    "FORMATS",
    "GRAPH_FORMATS",
    "Format",
    "GraphFormat",
    "SweepFormat",
    "find_format",
    "find_graph_format",
    "find_sweep_format",
]

Format = Callable[[Sequence[Scene]], bytes]
GraphFormat = Callable[[Drawing], bytes]
SweepFormat = Callable[["Sweep"], bytes]
_Made = TypeVar("_Made", Format, GraphFormat, SweepFormat)


def _vector(format: str) -> GraphFormat:
    return lambda drawing: render(drawing.source, format)


def _bitmap(drawing: Drawing) -> bytes:
    return render(drawing.source, "png", [f"-Gdpi={drawing.dpi}"])


GRAPH_FORMATS: Mapping[str, GraphFormat] = MappingProxyType(
    {
        ".svg": _vector("svg"),
        ".png": _bitmap,
        ".pdf": _vector("pdf"),
        ".dot": lambda drawing: drawing.source.encode(),
    }
)


def _picture(make: GraphFormat) -> Format:
    def picture(scenes: Sequence[Scene]) -> bytes:
        from .picture import draw_picture

        return make(draw_picture(scenes))

    return picture


def _html(scenes: Sequence[Scene]) -> bytes:
    from .html import html_page

    return html_page(scenes).encode()


def _sweep(sweep: Sweep) -> bytes:
    from .html import sweep_page

    return sweep_page(sweep).encode()


def _trace(scenes: Sequence[Scene]) -> bytes:
    from .trace import trace_json

    return trace_json(scenes).encode()


def _text(scenes: Sequence[Scene]) -> bytes:
    return f"{scenes_text(scenes).plain}\n".encode()


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        **{ending: _picture(make) for ending, make in GRAPH_FORMATS.items()},
        ".html": _html,
        ".json": _trace,
        ".txt": _text,
    }
)


SWEEP_FORMATS: Mapping[str, SweepFormat] = MappingProxyType({".html": _sweep})


def find_format(path: str | os.PathLike[str]) -> Format:
    """What makes the file of a path from timelines. Raises :class:`DrawError` where its ending names no format."""
    return _find(FORMATS, path)


def find_graph_format(path: str | os.PathLike[str]) -> GraphFormat:
    """The same for graphs."""
    return _find(GRAPH_FORMATS, path)


def find_sweep_format(path: str | os.PathLike[str]) -> SweepFormat:
    """The same for timelines under several values of parameters."""
    if Path(path).suffix.lower() in FORMATS.keys() - SWEEP_FORMATS.keys():
        raise DrawError(
            f"cannot draw {path} for several values of a parameter", f"end it in {', '.join(SWEEP_FORMATS)}"
        )
    return _find(SWEEP_FORMATS, path)


def _find(formats: Mapping[str, _Made], path: str | os.PathLike[str]) -> _Made:
    make = formats.get(Path(path).suffix.lower())
    if make is None:
        named = str(path) or "a file without a name"
        raise DrawError(f"cannot draw {named}: its ending names no format", f"end it in {', '.join(formats)}")
    return make
