"""piper-dsl import: another tool's schedule as a .pipe file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .common import errors, say_wrote, write_text


def import_schedule(
    file: Annotated[str, typer.Argument(help="A PyTorch schedule CSV, or - for standard input.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write here instead of standard output.")
    ] = None,
) -> None:
    """Turn a PyTorch schedule CSV into a readable .pipe file: the same operations in the same order.

    What is regular becomes ranges and loops. Check the result as any other file.

    Example: piper-dsl import schedule.csv -o schedule.pipe
    """
    from ..interop import read_csv
    from ..interop.pipe_text import to_pipe
    from ..library import read_source

    with errors():
        text = to_pipe(read_csv(read_source(file)))
        if output is None:
            sys.stdout.write(text)
        else:
            write_text(output, text)
            say_wrote(output)
