"""What the commands share: arguments, loading, printing, exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from ..diagnostics import Diagnostic, PipeError
from ..expand import DEFAULT_MAX_OPS
from ..ir.operations import Kind
from ..plan import PLACEMENTS, TRANSPORTS, Transport
from .render import as_text

if TYPE_CHECKING:
    from ..ir.schedule import Schedule
    from ..simulate import Costs

__all__ = [
    "CostOptions",
    "File",
    "Format",
    "FormatOption",
    "LatencyOption",
    "MaxOps",
    "MemoryLimitOption",
    "ParameterValues",
    "Parameters",
    "PlacementOption",
    "ProfileOption",
    "ReleasedOption",
    "TransportOption",
    "check_names",
    "checked",
    "console",
    "costs_of",
    "errors",
    "findings_exit",
    "fit",
    "limit_of",
    "loaded",
    "print_findings",
    "print_json",
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
CostOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--cost",
        metavar="KIND=X",
        help="The duration of a kind or slot, as in F=1 or F&B=2.5; or overhead=X, bandwidth=X. Repeatable.",
    ),
]
TransportOption = Annotated[
    str, typer.Option("--transport", metavar="NAME", help=f"How messages wait: {', '.join(TRANSPORTS)}.")
]
PlacementOption = Annotated[
    str, typer.Option("--placement", metavar="NAME", help=f"Where transfers go: auto, {', '.join(PLACEMENTS)}.")
]
ProfileOption = Annotated[str | None, typer.Option("--costs", metavar="FILE", help="A profile of costs, TOML or JSON.")]
MemoryLimitOption = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        metavar="X",
        help="What a rank may hold: one number, or one per rank. In activations, or as the profile counts.",
    ),
]
ReleasedOption = Annotated[
    float | None,
    typer.Option("--released-at-input", min=0.0, max=1.0, help="Part of an activation freed at I, not W."),
]
LatencyOption = Annotated[
    float | None, typer.Option("--latency", min=0.0, help="What passes until a result arrives on another rank.")
]


def console(*, errors: bool = False) -> Console:
    """The terminal; plain text where it is none."""
    return Console(stderr=errors, highlight=False, soft_wrap=True)


def values_of(options: Iterable[str] | None) -> dict[str, list[int]]:
    """The values of ``-p name=1,2,3``; a usage error for anything else."""
    found = {}
    for option in options or ():
        name, _, listed = option.partition("=")
        try:
            found[name.strip()] = [int(value) for value in listed.split(",")]
        except ValueError:
            raise typer.BadParameter(f"{option!r}: write -p name=values, as in -p m=8 or -p m=8,16,32") from None
    return found


def parameters_of(options: Iterable[str] | Mapping[str, int] | None) -> dict[str, int]:
    """The parameters set by ``-p name=value``; a usage error for anything else."""
    if isinstance(options, Mapping):
        return dict(options)
    found = {}
    for option in options or ():
        name, _, value = option.partition("=")
        try:
            found[name.strip()] = int(value)
        except ValueError:
            raise typer.BadParameter(f"{option!r}: write -p name=value with a whole number, as in -p m=8") from None
    return found


def costs_of(
    options: Iterable[str] | None,
    latency: float | None = None,
    profile: str | None = None,
    released_at_input: float | None = None,
    *,
    base: Costs | None = None,
) -> Costs:
    """The costs of ``--costs FILE``, else ``base``, overridden by ``--cost KIND=x`` and by the numbers given.

    Raises PipeError for a profile that cannot be used.
    """
    from ..ir.costs import Costs
    from ..ir.profile import read_profile

    base = read_profile(profile) if profile else base or Costs()
    found: dict[str, Any] = dict(_cost(option) for option in options or ())
    if latency is not None:
        found["latency"] = latency
    try:
        if released_at_input is not None:
            found["memory"] = replace(base.memory, released_at_input=released_at_input)
        return base.changed(**found)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _cost(option: str) -> tuple[str, float]:
    """One ``--cost NAME=x``: a kind, kinds that overlap, the overhead of every operation, or the bandwidth."""
    name, _, value = option.partition("=")
    try:
        if name.strip() in ("overhead", "bandwidth"):
            return name.strip(), float(value)
        return "&".join(Kind[part.strip()].name for part in name.split("&")), float(value)
    except KeyError:
        kinds = ", ".join(Kind.__members__)
        message = f"{option!r}: no kind of operation is called {name.strip()}; there are {kinds}, overhead, bandwidth"
        raise typer.BadParameter(message) from None
    except ValueError:
        raise typer.BadParameter(f"{option!r}: write --cost KIND=number, as in --cost F=1.5") from None


def limit_of(text: str | None) -> float | list[float] | None:
    """A memory limit: `8`, or `8,6,4,2`."""
    if text is None:
        return None
    try:
        numbers = [float(part) for part in text.split(",")]
        if any(isnan(number) for number in numbers):
            raise ValueError
    except ValueError:
        raise typer.BadParameter(f"{text!r}: write --memory-limit 8, or one number per rank: 8,6,4,2") from None
    return numbers[0] if len(numbers) == 1 else numbers


def loaded(file: str, parameters: Iterable[str] | Mapping[str, int] | None, max_ops: int = DEFAULT_MAX_OPS) -> Schedule:
    """The schedule a command works on. Raises PipeError."""
    from ..library import load

    return load(file, parameters_of(parameters), max_ops=max_ops)


def checked(
    file: str,
    parameters: Iterable[str] | Mapping[str, int] | None,
    max_ops: int = DEFAULT_MAX_OPS,
    transport: str = "buffered",
    placement: str = "auto",
    memory_limit: float | list[float] | None = None,
    costs: Costs | None = None,
) -> Schedule:
    """The same, after it has passed the checks on a transport and within a limit of memory.

    Raises PipeError with the findings, or with P003 for costs that do not fit the schedule.
    """
    from ..check import check
    from ..ir.costs import Costs

    check_names(transport, placement)
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


def check_names(transport: str, placement: str = "auto") -> None:
    """A usage error where there is no such transport or placement."""
    try:
        Transport.parse(transport)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if placement not in ("auto", *PLACEMENTS):
        raise typer.BadParameter(f"there is no placement `{placement}`; there are auto, {', '.join(PLACEMENTS)}")


def say_wrote(path: Path | str, *, errors: bool = False) -> None:
    """Tells where something was written. Names of files may look like markup."""
    console(errors=errors).print(f"wrote {escape(str(path))}")


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


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
        raise PipeError(Diagnostic("P002", f"cannot write {path}: {error.strerror}")) from error


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
