"""Pictures of a timeline, for a terminal and as files."""

from __future__ import annotations

import os
from pathlib import Path

from ..simulate.timeline import Timeline
from .errors import DrawError
from .formats import FORMATS
from .text import timeline_text

__all__ = ["DrawError", "draw", "timeline_text"]


def draw(timeline: Timeline, path: str | os.PathLike[str]) -> None:
    """Write a picture; the ending says which: ``.svg``, ``.png``, ``.pdf``, ``.dot`` or ``.txt``.

    Missing folders are made. Raises :class:`DrawError` for another ending, where no program can draw the
    format (``.pdf`` needs the system's Graphviz), and where the file cannot be written.
    """
    target = Path(path)
    make = FORMATS.get(target.suffix.lower())
    if make is None:
        raise DrawError(f"cannot draw {target}: its ending names no format", f"end it in {', '.join(FORMATS)}")
    picture = make(timeline)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(picture)
    except OSError as error:
        raise DrawError(f"cannot write {target}: {error.strerror}", "choose a file that can be written") from error
