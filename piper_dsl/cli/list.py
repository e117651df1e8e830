"""piper-dsl list and show: the library of schedules."""

from __future__ import annotations

import sys
from typing import Any

from rich.table import Table

from ..diagnostics import Source
from ..syntax import tree as t
from .common import File, Format, FormatOption, console, errors, print_json

__all__ = ["list_schedules", "show", "summary"]


def list_schedules(format: FormatOption = Format.TEXT) -> None:
    """List the schedules of the library with their parameters.

    Example: piper-dsl list
    """
    from ..library import library_names, read_source

    entries = [_entry(name, read_source(name)) for name in library_names()]
    if format is Format.JSON:
        print_json({"schedules": entries})
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("name", "parameters", "what it is"):
        table.add_column(heading)
    for entry in entries:
        parameters = "  ".join(f"{p['name']}={p['default']}" for p in entry["parameters"])
        table.add_row(entry["name"], parameters, entry["summary"])
    console().print(table)


def show(file: File) -> None:
    """Print the source of a schedule.

    Example: piper-dsl show 1f1b
    """
    from ..library import read_source

    with errors():
        sys.stdout.write(read_source(file).text)


def _entry(name: str, source: Source) -> dict[str, Any]:
    from ..syntax import parse

    parameters = [
        {"name": s.name.text, "default": s.default.span.text, "description": s.description}
        for s in parse(source).statements
        if isinstance(s, t.Param)
    ]
    return {"name": name, "summary": summary(source.text), "parameters": parameters}


def summary(text: str) -> str:
    """The first sentence of the comment at the top, without its reference."""
    lines = []
    for line in text.splitlines():
        if line.strip() in ("", "#") or not line.startswith("#"):
            break
        lines.append(line.lstrip("# ").rstrip())
    return " ".join(lines).split(" (")[0].rstrip(".")
