"""Pictures of timelines, for a terminal and as files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..simulate.timeline import Timeline
from .cycle import draw_cycle, find_cycle
from .errors import DrawError
from .formats import FORMATS, find_format, find_graph_format
from .graphs import draw_needs, draw_stages
from .palette import paint
from .scene import Scene, find_scene
from .stuck import Head, run_until_stuck
from .text import scenes_text, timeline_text
from .theme import THEMES, Theme
from .view import View

__all__ = [
    "FORMATS",
    "THEMES",
    "DrawError",
    "Head",
    "Scene",
    "Theme",
    "View",
    "draw",
    "draw_cycle",
    "draw_needs",
    "draw_scenes",
    "draw_stages",
    "find_cycle",
    "find_format",
    "find_graph_format",
    "find_scene",
    "paint",
    "run_until_stuck",
    "scenes_text",
    "timeline_text",
    "write",
]


def draw(timeline: Timeline | Sequence[Timeline], path: str | os.PathLike[str], view: View | None = None) -> None:
    """Write a picture; the ending says which: ``.svg``, ``.png``, ``.pdf``, ``.dot``, ``.txt``, or ``.json`` for a
    trace.

    Several timelines stand under one time axis, and what differs from the first is marked. Missing folders
    are made. Raises :class:`DrawError` for another ending, where no program can draw the format (``.pdf``
    needs the system's Graphviz), for a window that holds nothing, and where the file cannot be written.
    """
    timelines = [timeline] if isinstance(timeline, Timeline) else timeline
    draw_scenes([find_scene(one, view or View()) for one in timelines], path)


def draw_scenes(scenes: Sequence[Scene], path: str | os.PathLike[str]) -> None:
    """The same for what :func:`find_scene` found."""
    write(path, find_format(path)(scenes))


def write(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a file and makes its folders. Raises :class:`DrawError` where that is not possible."""
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    except OSError as error:
        raise DrawError(f"cannot write {target}: {error.strerror}", "choose a file that can be written") from error
