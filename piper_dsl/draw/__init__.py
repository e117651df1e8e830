"""Pictures of timelines and graphs, for a terminal and as files.

Importing this package loads next to nothing, so that ``piper_dsl.draw`` can be both it and its function.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..simulate.timeline import Timeline
    from .cycle import draw_cycle, find_cycle
    from .errors import DrawError
    from .formats import FORMATS, find_format, find_graph_format, find_sweep_format
    from .graphs import draw_needs, draw_stages
    from .palette import paint
    from .scene import Ran, Scene, find_scene, find_scenes
    from .stuck import Head, run_until_stuck
    from .text import scenes_text, timeline_text
    from .theme import THEMES, Theme
    from .transfer_cycle import draw_transfer_cycle
    from .view import View

__all__ = [
    "FORMATS",
    "THEMES",
    "DrawError",
    "Head",
    "Ran",
    "Scene",
    "Theme",
    "View",
    "draw",
    "draw_cycle",
    "draw_needs",
    "draw_scenes",
    "draw_stages",
    "draw_transfer_cycle",
    "find_cycle",
    "find_format",
    "find_graph_format",
    "find_scene",
    "find_scenes",
    "find_sweep_format",
    "paint",
    "run_until_stuck",
    "scenes_text",
    "timeline_text",
    "write",
]

_MODULES = {
    "cycle": ("draw_cycle", "find_cycle"),
    "errors": ("DrawError",),
    "formats": ("FORMATS", "find_format", "find_graph_format", "find_sweep_format"),
    "graphs": ("draw_needs", "draw_stages"),
    "palette": ("paint",),
    "scene": ("Ran", "Scene", "find_scene", "find_scenes"),
    "stuck": ("Head", "run_until_stuck"),
    "text": ("scenes_text", "timeline_text"),
    "theme": ("THEMES", "Theme"),
    "transfer_cycle": ("draw_transfer_cycle",),
    "view": ("View",),
}
"""Where the names come from that are loaded when they are first asked for."""


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def draw(timeline: Timeline | Sequence[Timeline], path: str | os.PathLike[str], view: View | None = None) -> None:
    """Write a picture; the ending says which.

    ``.svg``, ``.png``, ``.pdf``, ``.dot``, ``.txt``, or ``.html`` for a page and ``.json`` for a trace.

    Several timelines stand under one time axis, and what differs from the first is marked. Missing folders
    are made. Raises :class:`DrawError` for another ending, where no program can draw the format (``.pdf``
    needs the system's Graphviz), for a window that holds nothing, and where the file cannot be written.
    """
    from .scene import Ran, find_scenes
    from .view import View

    timelines = timeline if isinstance(timeline, Sequence) else [timeline]
    draw_scenes(find_scenes([Ran(one) for one in timelines], view or View()), path)


def draw_scenes(scenes: Sequence[Scene], path: str | os.PathLike[str]) -> None:
    """The same for what :func:`find_scene` found."""
    from .formats import find_format

    write(path, find_format(path)(scenes))


def write(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a file and makes its folders. Raises :class:`DrawError` where that is not possible."""
    from .errors import DrawError

    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    except FileExistsError as error:
        raise DrawError(f"cannot write {target}: {target.parent} is not a folder", "choose another place") from error
    except OSError as error:
        raise DrawError(f"cannot write {target}: {error.strerror}", "choose a file that can be written") from error
