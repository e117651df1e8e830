"""The entry point: registers the commands and keeps tracebacks from users."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import typer

__all__ = ["main", "make_app"]

_COMMANDS = {
    "check": "check",
    "simulate": "simulate",
    "visualize": "visualize",
    "compile": "compile",
    "run": "run",
    "compare": "compare",
    "search": "search",
    "fmt": "fmt",
    "import": "import_.import_schedule",
    "list": "list.list_schedules",
    "show": "list.show",
    "explain": "explain",
}
"""Where the function of every command is, as module.function of this package; or both have one name."""


def make_app(names: Iterable[str] = _COMMANDS) -> typer.Typer:
    """The command line with some of its commands; the others are not even imported."""
    made = typer.Typer(
        name="piper-dsl",
        help="Pipeline-parallel training schedules: check, simulate, draw, compile and run .pipe files.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    made.callback()(_options)
    for name in names:
        made.command(name)(_function(_COMMANDS[name]))
    return made


def _function(place: str) -> Callable[..., Any]:
    module, _, function = place.partition(".")
    found: Callable[..., Any] = getattr(import_module(f".{module}", __package__), function or module)
    return found


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"piper-dsl {version('piper-dsl')}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show it."),
) -> None:
    """What stands before a command."""


def __getattr__(name: str) -> Any:
    """``app``, the whole command line, for those who embed it."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return make_app()


def main() -> None:
    """Runs the command line. Where a command is named first, only that one is loaded."""
    named = sys.argv[1:2]
    make_app(named if set(named) & set(_COMMANDS) else _COMMANDS)()
