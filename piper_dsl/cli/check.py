"""piper-dsl check: can this schedule run?"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer
from rich.markup import escape

from ..diagnostics import Diagnostic, PipeError
from ..expand import DEFAULT_MAX_OPS
from ..ir.schedule import Schedule
from .annotations import as_github, as_sarif
from .common import (
    FINDINGS,
    File,
    MaxOps,
    Parameters,
    console,
    errors,
    fit,
    loaded,
    print_findings,
    print_json,
)
from .options import Limits, Profile, Transported, grouped
from .outputs import formats_of, write_all
from .render import as_json


class CheckFormat(str, Enum):
    """How findings are reported: to people, programs, workflow annotations, or code scanners."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    SARIF = "sarif"


@grouped
def check(
    file: File,
    param: Parameters = None,
    format: Annotated[CheckFormat, typer.Option("--format", help="How to report.")] = CheckFormat.TEXT,
    *,
    sending: Transported,
    limits: Limits,
    profile: Profile,
    draw: Annotated[
        str | None, typer.Option("--draw", metavar="FILE", help="Where to draw the circle in which ranks wait.")
    ] = None,
    max_ops: MaxOps = DEFAULT_MAX_OPS,
) -> None:
    """Check that a schedule is complete, that its order can run, and that its transfers complete.

    How long operations take never changes the verdict; what a profile says of memory is what a limit counts.

    Example: piper-dsl check 1f1b -p p=8 -p m=64 --transport pair --memory-limit 8

    Example: piper-dsl check mine.pipe --draw cycle.svg
    """
    from ..check import check as run_checks

    limit = limits.memory
    schedule: Schedule | None = None
    findings: tuple[Diagnostic, ...]
    try:
        chosen = profile.chosen()
        schedule = loaded(file, param, max_ops)
        fit(chosen, schedule)
        findings = run_checks(schedule, sending.transport, limit, chosen.memory)
    except PipeError as error:
        findings = error.diagnostics
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    _report(file, schedule, findings, format)
    if draw is not None and schedule:
        _draw(schedule, findings, sending.transport, draw)
    if findings:
        raise typer.Exit(FINDINGS)


def _draw(schedule: Schedule, findings: tuple[Diagnostic, ...], transport: str, path: str) -> None:
    """The circle in which ranks or their transfers wait, if they do."""
    from ..draw import draw_cycle, draw_transfer_cycle, find_cycle, find_graph_format, run_until_stuck
    from ..ir.costs import Costs

    with errors():
        outputs = formats_of([path], find_graph_format, ".svg")
        _, heads = run_until_stuck(schedule, Costs())
        if find_cycle(schedule, heads):
            write_all(outputs, draw_cycle(schedule, heads))
        elif any(finding.code == "P501" for finding in findings):
            write_all(outputs, draw_transfer_cycle(schedule, transport))
        else:
            console(errors=True).print("nothing to draw: no ranks wait in a circle")


def _report(file: str, schedule: Schedule | None, findings: tuple[Diagnostic, ...], format: CheckFormat) -> None:
    match format:
        case CheckFormat.JSON:
            summary = _summary(schedule) if schedule else None
            print_json({"ok": not findings, "schedule": summary, "diagnostics": [as_json(f) for f in findings]})
        case CheckFormat.SARIF:
            print_json(as_sarif(findings))
        case CheckFormat.GITHUB:
            for finding in findings:
                typer.echo(as_github(finding))
        case CheckFormat.TEXT:
            print_findings(findings)
            _verdict(file, schedule, findings)


def _summary(schedule: Schedule) -> dict[str, str | int]:
    return {
        "name": schedule.name,
        "ranks": schedule.ranks,
        "stages": schedule.stages,
        "microbatches": schedule.microbatches,
        "operations": len(schedule),
    }


def _verdict(file: str, schedule: Schedule | None, findings: tuple[Diagnostic, ...]) -> None:
    if findings:
        count = f"{len(findings)} finding{'s' if len(findings) > 1 else ''}"
        console(errors=True).print(f"[bold red]{count}[/] in {escape(file)}")
    elif schedule:
        console().print(
            f"[bold green]ok[/]  {escape(schedule.name)}: {schedule.ranks} ranks, {schedule.stages} stages, "
            f"{schedule.microbatches} microbatches, {len(schedule):,} operations"
        )
