"""Finding schedules: the standard library by name, .pipe and .csv files by path, standard input by ``-``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from .diagnostics import Diagnostic, PipeError, Source
from .expand import DEFAULT_MAX_OPS, expand
from .expand.names import did_you_mean
from .interop import CSV_SUFFIX, read_csv
from .ir.schedule import Schedule
from .syntax import parse

__all__ = ["library_names", "load", "read_source"]

SUFFIX = ".pipe"


def library_names() -> tuple[str, ...]:
    """The schedules that ship with the package, sorted."""
    folder = files("piper_dsl.schedules")
    return tuple(sorted(p.name.removesuffix(SUFFIX) for p in folder.iterdir() if p.name.endswith(SUFFIX)))


def read_source(name: str) -> Source:
    """The text of a library schedule, a path, or standard input (``-``).

    A path is what exists as a file or looks like one. Raises :class:`PipeError` (P001) where there is
    no such thing or it is not UTF-8 text.
    """
    if name == "-":
        return Source.decoded("<stdin>", sys.stdin.buffer.read())
    path = Path(name)
    if name in library_names() and not path.is_file():
        resource = files("piper_dsl.schedules").joinpath(name + SUFFIX)
        return Source(f"{name}{SUFFIX}", resource.read_text(encoding="utf-8"))
    try:
        return Source.decoded(name, path.read_bytes())
    except OSError as error:
        looks_like_path = path.suffix or len(path.parts) > 1
        message = f"cannot read {name}: {error.strerror}" if looks_like_path else f"there is no schedule `{name}`"
        known = did_you_mean(name, library_names()) or "`piper-dsl list` shows the library; a path ends in .pipe"
        raise PipeError(Diagnostic("P001", message, None, known)) from error


def load(
    name: str, parameters: Mapping[str, int] | None = None, *, max_ops: int = DEFAULT_MAX_OPS, **named: int
) -> Schedule:
    """The schedule of a library name, a path or ``-``, under parameters: ``load("1f1b", p=4, m=8)``.

    Parameters may also come as a mapping. Raises :class:`PipeError` with every finding.
    """
    if name.endswith(".json"):
        help_ = "a measured timeline stands beside schedules in visualize and compare; schedules end in .pipe or .csv"
        raise PipeError(Diagnostic("P001", f"{name} is no schedule", None, help_))
    source, given = read_source(name), {**(parameters or {}), **named}
    if source.name.endswith(CSV_SUFFIX):
        if given:
            raise PipeError(Diagnostic("P212", f"a CSV has no parameters, so none can be `{next(iter(given))}`"))
        return read_csv(source)
    return expand(parse(source), given, max_ops)
