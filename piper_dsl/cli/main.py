"""The entry point: registers the commands and keeps tracebacks from users."""

from __future__ import annotations

import typer

from .check import check
from .compare import compare
from .compile import compile
from .explain import explain
from .fmt import fmt
from .import_ import import_schedule
from .list import list_schedules, show
from .run import run
from .simulate import simulate
from .visualize import visualize

__all__ = ["app", "main"]

app = typer.Typer(
    name="piper-dsl",
    help="Pipeline-parallel training schedules: check, simulate, draw, compile and run .pipe files.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("check")(check)
app.command("simulate")(simulate)
app.command("visualize")(visualize)
app.command("compile")(compile)
app.command("run")(run)
app.command("compare")(compare)
app.command("fmt")(fmt)
app.command("import")(import_schedule)
app.command("list")(list_schedules)
app.command("show")(show)
app.command("explain")(explain)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"piper-dsl {version('piper-dsl')}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show it."),
) -> None:
    """What stands before a command."""


def main() -> None:
    """Runs the command line."""
    app()
