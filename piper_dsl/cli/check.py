"""piper-dsl check: can this schedule run?"""

from __future__ import annotations

import typer

from ..diagnostics import Diagnostic, PipeError
from ..expand import DEFAULT_MAX_OPS
from ..ir.schedule import Schedule
from .common import (
    FINDINGS,
    File,
    Format,
    FormatOption,
    MaxOps,
    Parameters,
    console,
    loaded,
    print_findings,
    print_json,
)
from .render import as_json


def check(
    file: File,
    param: Parameters = None,
    format: FormatOption = Format.TEXT,
    max_ops: MaxOps = DEFAULT_MAX_OPS,
) -> None:
    """Check that a schedule is complete and that its order can run.

    Example: piper-dsl check 1f1b -p p=8 -p m=64
    """
    from ..check import check as run_checks

    schedule: Schedule | None = None
    findings: tuple[Diagnostic, ...]
    try:
        schedule = loaded(file, param, max_ops)
        findings = run_checks(schedule)
    except PipeError as error:
        findings = error.diagnostics
    if format is Format.JSON:
        summary = _summary(schedule) if schedule else None
        print_json({"ok": not findings, "schedule": summary, "diagnostics": [as_json(f) for f in findings]})
    else:
        print_findings(findings)
        _verdict(file, schedule, findings)
    if findings:
        raise typer.Exit(FINDINGS)


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
        console(errors=True).print(f"[bold red]{count}[/] in {file}")
    elif schedule:
        console().print(
            f"[bold green]ok[/]  {schedule.name}: {schedule.ranks} ranks, {schedule.stages} stages, "
            f"{schedule.microbatches} microbatches, {len(schedule):,} operations"
        )
