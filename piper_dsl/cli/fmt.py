"""piper-dsl fmt: one canonical layout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ..diagnostics import PipeError
from .common import FINDINGS, console, print_findings, write_text


def fmt(
    files: Annotated[list[str], typer.Argument(help=".pipe files, or - for standard input to standard output.")],
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit with 1 if a file would change.")] = False,
) -> None:
    """Lay out files canonically. Comments stay; only whitespace changes.

    Example: piper-dsl fmt --check schedules/*.pipe
    """
    outcomes = [_format(name, check) for name in files]
    if not all(outcomes):
        raise typer.Exit(FINDINGS)


def _format(name: str, check: bool) -> bool:
    """Formats one file; whether all is well with it."""
    from ..library import read_source
    from ..syntax.formatter import format_source

    try:
        source = read_source(name)
        text = format_source(source)
        if name == "-" and not check:
            sys.stdout.write(text)
        elif text != source.text:
            if check:
                console().print(f"would reformat {escape(str(name))}")
                return False
            write_text(Path(name), text)
            console().print(f"reformatted {escape(str(name))}")
    except PipeError as error:
        print_findings(error.diagnostics)
        return False
    return True
