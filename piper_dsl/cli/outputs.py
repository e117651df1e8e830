"""Where pictures go: files by their ending, and standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from .common import say_wrote

__all__ = ["formats_of", "write_all"]

_Subject = TypeVar("_Subject")
_Make = Callable[[_Subject], bytes]

_STANDARD = "-"


def formats_of(
    paths: Iterable[str], find: Callable[[str], _Make[_Subject]], default: str
) -> Mapping[str, _Make[_Subject]]:
    """What makes every output: by its ending, ``-.svg`` for standard output, where ``-`` is the ``default`` ending.

    Raises DrawError for an ending that names no format.
    """
    return {path: find(_named(path, default)) for path in paths}


def _named(path: str, default: str) -> str:
    if path == _STANDARD:
        return f"standard output{default}"
    return f"standard output{path[1:]}" if _is_standard(path) else path


def _is_standard(path: str) -> bool:
    return path == _STANDARD or path.startswith(f"{_STANDARD}.")


def write_all(outputs: Mapping[str, _Make[_Subject]], subject: _Subject) -> None:
    """Draws all; what is said of files stays out of the way of what goes to standard output. Raises DrawError."""
    from ..draw import write

    aside = any(map(_is_standard, outputs))
    for path, make in outputs.items():
        picture = make(subject)
        if _is_standard(path):
            sys.stdout.buffer.write(picture)
        else:
            write(path, picture)
            say_wrote(path, errors=aside)
