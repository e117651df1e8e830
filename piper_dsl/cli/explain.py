"""piper-dsl explain: the page of a diagnostic code."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated

import typer
from rich.table import Table

from ..codes import CODES
from .common import console

_WIDTH = 100
"""Pages are set no wider than this: longer lines are hard to read."""


def explain(
    code: Annotated[str | None, typer.Argument(help="The code of a finding; without one, all are listed.")] = None,
) -> None:
    """Explain a diagnostic code: what it means, how to repair it, a failing file and the repaired one.

    Example: piper-dsl explain P301
    """
    if code is None:
        _list()
        return
    text = _page(code)
    terminal = console()
    if terminal.is_terminal:
        from rich.markdown import Markdown

        terminal.print(Markdown(text), width=min(_WIDTH, terminal.width), soft_wrap=False)
    else:
        typer.echo(text, nl=False)


def _page(code: str) -> str:
    """The page of a code in any case; a usage error where there is none."""
    known = code.upper()
    if known not in CODES:
        from ..expand.names import did_you_mean

        help_ = did_you_mean(known, CODES) or "`piper-dsl explain` lists all"
        raise typer.BadParameter(f"there is no code `{code}`; {help_}")
    return files("piper_dsl.pages").joinpath(f"{known}.md").read_text(encoding="utf-8")


def _list() -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("code", "what it means"):
        table.add_column(heading)
    for code, line in CODES.items():
        table.add_row(code, line)
    console().print(table)
