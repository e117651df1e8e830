"""One file format an ending: how a timeline becomes the bytes of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ..simulate.timeline import Timeline
from .program import render
from .text import timeline_text

__all__ = ["FORMATS"]


def _text(timeline: Timeline) -> bytes:
    return f"{timeline_text(timeline).plain}\n".encode()


def _dot(timeline: Timeline) -> bytes:
    from .graphviz import dot_source

    return dot_source(timeline).encode()


def _png(timeline: Timeline) -> bytes:
    from .graphviz import dot_source, find_dpi

    return render(dot_source(timeline), "png", [f"-Gdpi={find_dpi(timeline)}"])


def _vector(format: str) -> Callable[[Timeline], bytes]:
    return lambda timeline: render(_dot(timeline).decode(), format)


FORMATS: Mapping[str, Callable[[Timeline], bytes]] = MappingProxyType(
    {".svg": _vector("svg"), ".png": _png, ".pdf": _vector("pdf"), ".dot": _dot, ".txt": _text}
)
