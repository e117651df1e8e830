"""What the commands share: arguments, loading, printing, exit codes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from ..diagnostics import Diagnostic, PipeError
from ..expand import DEFAULT_MAX_OPS
from .render import as_text

if TYPE_CHECKING:
    from ..ir.schedule import Schedule
    from ..simulate import Costs

__all__ = [
    "File",
    "Format",
    "FormatOption",
    "MaxOps",
    "ParameterValues",
    "Parameters",
    "checked",
    "console",
    "errors",
    "findings_exit",
    "fit",
    "loaded",
    "print_findings",
    "print_json",
    "require_writable",
    "said",
    "say_wrote",
    "values_of",
    "write_text",
]

FINDINGS = 1
"""The exit code of a command that found something."""


class Format(str, Enum):
    """How a command reports."""

    TEXT = "text"
    JSON = "json"


File = Annotated[
    str, typer.Argument(help="A .pipe or PyTorch .csv file, a name of the library, or - for standard input.")
]
Parameters = Annotated[
    list[str] | None, typer.Option("-p", "--param", metavar="NAME=VALUE", help="Set a parameter. May be repeated.")
]
ParameterValues = Annotated[
    list[str] | None,
    typer.Option("-p", "--param", metavar="NAME=A,B,…", help="Values of a parameter. May be repeated."),
]
FormatOption = Annotated[Format, typer.Option("--format", help="How to report.")]
MaxOps = Annotated[int, typer.Option("--max-ops", min=1, help="Stop expanding beyond this many operations.")]


def console(*, errors: bool = False) -> Console:
    """The terminal; plain text where it is none."""
    return Console(stderr=errors, highlight=False, soft_wrap=True)


def values_of(options: Iterable[str] | None) -> dict[str, list[int]]:
    """The values of ``-p name=1,2,3``; a usage error for anything else, and for what is said twice."""
    found: dict[str, list[int]] = {}
    for option in options or ():
        name, _, listed = option.partition("=")
        try:
            values = [int(value) for value in listed.split(",")]
        except ValueError:
            raise typer.BadParameter(f"{option!r}: write -p name=value with a whole number, as in -p m=8") from None
        if len(set(values)) < len(values):
            raise typer.BadParameter(f"{option!r}: a value is there twice")
        if found.setdefault(name.strip(), values) is not values:
            raise typer.BadParameter(f"{option!r}: -p {name.strip()} is given twice")
    return found


def parameters_of(options: Iterable[str] | Mapping[str, int] | None) -> dict[str, int]:
    """The parameters set by ``-p name=value``; a usage error for anything else."""
    if isinstance(options, Mapping):
        return dict(options)
    values = values_of(options)
    if several := [name for name, given in values.items() if len(given) > 1]:
        raise typer.BadParameter(
            f"one value of {several[0]} is wanted here; compare and pages of visualize take several"
        )
    return {name: value for name, (value,) in values.items()}


def said(parameters: Mapping[str, int]) -> str:
    """Parameters as a reader would write them: ``p=4 m=8``."""
    return " ".join(f"{name}={value}" for name, value in parameters.items())


def loaded(file: str, parameters: Iterable[str] | Mapping[str, int] | None, max_ops: int = DEFAULT_MAX_OPS) -> Schedule:
    """The schedule a command works on. Raises PipeError."""
    from ..library import load

    return load(file, parameters_of(parameters), max_ops=max_ops)


def checked(
    file: str,
    parameters: Iterable[str] | Mapping[str, int] | None,
    max_ops: int = DEFAULT_MAX_OPS,
    transport: str = "buffered",
    memory_limit: float | list[float] | None = None,
    costs: Costs | None = None,
) -> Schedule:
    """The same, after it has passed the checks on a transport and within a limit of memory.

    Raises PipeError with the findings, or with P003 for costs that do not fit the schedule.
    """
    from ..check import check
    from ..ir.costs import Costs

    schedule = loaded(file, parameters, max_ops)
    fit(costs or Costs(), schedule)
    try:
        findings = check(schedule, transport, memory_limit, (costs or Costs()).memory)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if findings:
        raise PipeError(*findings)
    return schedule


def fit(costs: Costs, schedule: Schedule) -> None:
    """Raises PipeError (P003) for costs that have not one entry for every stage of a schedule."""
    from ..ir.stage_values import DoesNotFit

    try:
        costs.require_fit(schedule.stages)
    except DoesNotFit as error:
        help_ = f"give one number for all stages, or {schedule.stages}: one for each"
        raise PipeError(Diagnostic("P003", f"the costs do not fit {schedule.name}: {error}", None, help_)) from None


def say_wrote(path: Path | str, *, errors: bool = False) -> None:
    """Tells where something was written. Names of files may look like markup."""
    console(errors=errors).print(f"wrote {escape(str(path))}")


def print_json(document: Any) -> None:
    """One JSON document on standard output; null for the numbers that JSON does not have."""
    sys.stdout.write(json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(entry) for name, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, list | tuple) else value


def print_findings(findings: Iterable[Diagnostic]) -> None:
    """Findings for a person, on standard error."""
    terminal = console(errors=True)
    for finding in findings:
        terminal.print(as_text(finding))


def findings_exit(findings: Iterable[Diagnostic]) -> typer.Exit:
    """Prints findings; the exit to raise."""
    print_findings(findings)
    return typer.Exit(FINDINGS)


def write_text(path: Path, text: str) -> None:
    """Writes a file, making its folders. Raises PipeError (P002) where that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from error


def require_writable(path: Path, *, folder: bool = False) -> None:
    """Raises PipeError (P002) where a file, or files of a folder, could not be written; writes nothing."""
    try:
        there = next(place for place in (path, *path.parents) if place.exists())
        if path.is_dir() and not folder:
            raise IsADirectoryError(None, "Is a directory")
        if (folder or there != path) and not there.is_dir():
            raise NotADirectoryError(None, f"{there} is not a directory")
        if not os.access(there, os.W_OK):
            raise PermissionError(None, "Permission denied")
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> PipeError:
    return PipeError(Diagnostic("P002", f"cannot write {path}: {error.strerror}"))


@contextmanager
def errors() -> Iterator[None]:
    """Turns findings, and pictures that cannot be made, into messages and exit code 1."""
    from ..draw import DrawError

    try:
        yield
    except PipeError as error:
        raise findings_exit(error.diagnostics) from None
    except DrawError as error:
        raise findings_exit([Diagnostic("P801", error.message, None, error.help)]) from None
