"""piper-dsl compare: several schedules side by side."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ..diagnostics import PipeError
from ..expand import DEFAULT_MAX_OPS
from ..simulate import Timeline
from .common import (
    FINDINGS,
    Format,
    FormatOption,
    MaxOps,
    ParameterValues,
    checked,
    console,
    errors,
    print_json,
    said,
    values_of,
)
from .options import Sending, Timing, grouped
from .subjects import Subjects, find_subjects

__all__ = ["compare"]


@dataclass(frozen=True)
class _Row:
    """One schedule under one set of parameters: its timeline, or why there is none.

    ``share`` is how much of a rank's model one stage is: what its costs and its activations are scaled by.
    """

    name: str
    parameters: dict[str, int]
    timeline: Timeline | None
    refusal: str = ""
    share: float = 1.0


@grouped
def compare(
    files: Annotated[
        list[str], typer.Argument(help=".pipe or .csv files, names of library schedules, or .json timelines of run.")
    ],
    param: ParameterValues = None,
    *,
    timing: Timing,
    sending: Sending,
    format: FormatOption = Format.TEXT,
    max_ops: MaxOps = DEFAULT_MAX_OPS,
) -> None:
    """Simulate several schedules under the same parameters and costs, in one table; the best are marked.

    The model is the same for all: where a rank has several stages, each is a part of what it has otherwise, so
    costs and activations are divided by their number, unless a profile says what the stages cost.
    A timeline that run measured stands beside them as it was; schedules then have its costs, or those of --costs.
    A schedule that does not take a combination of parameters says why. The exit code is 1 if none does.

    Example: piper-dsl compare 1f1b zb_h1 zb_h2 -p p=4 -p m=8,16,32 --latency 0.2
    """
    values = values_of(param)
    with errors():
        subjects = find_subjects(files, param, timing)
    groups = [
        [_row(file, dict(zip(values, chosen, strict=True)), subjects, sending, max_ops) for file in files]
        for chosen in product(*values.values())
    ]
    if format is Format.JSON:
        print_json({"schedules": [_document(row) for group in groups for row in group]})
    else:
        _print(groups)
    if not any(row.timeline for group in groups for row in group):
        raise typer.Exit(FINDINGS)


def _row(file: str, parameters: dict[str, int], subjects: Subjects, sending: Sending, max_ops: int) -> _Row:
    from ..simulate import simulate

    try:
        if file in subjects.measured:
            timeline = subjects.measured_under(file, parameters)
            return _Row(f"{timeline.schedule.name}, measured", dict(timeline.schedule.parameters), timeline)
        schedule = checked(file, parameters, max_ops, sending.transport)
        costs = subjects.costs_of(schedule)
    except PipeError as error:
        return _Row(file, parameters, None, error.diagnostics[0].message)
    timeline = simulate(schedule, costs, sending.transport, sending.placement)
    return _Row(schedule.name, dict(schedule.parameters), timeline, share=subjects.share(schedule))


def _document(row: _Row) -> dict[str, Any]:
    timeline = row.timeline
    if timeline is None:
        return {"name": row.name, "parameters": row.parameters, "refusal": row.refusal}
    return {
        "name": row.name,
        "parameters": row.parameters,
        "stages": timeline.schedule.stages,
        "makespan": timeline.makespan,
        "bubble": {"idle": timeline.bubble.idle, "span": timeline.bubble.span},
        "peak_activations": list(timeline.peak_activations),
        "peak_memory": list(timeline.peak_memory),
        "transfer_wait": timeline.transfer_wait,
        "measured": timeline.measured,
    }


def _print(groups: list[list[_Row]]) -> None:
    """The table, and below it why rows of it are empty."""
    terminal = console()
    terminal.print(_table(groups))
    for row in (row for group in groups for row in group if row.timeline is None):
        terminal.print(f"{escape(row.name)} {said(row.parameters)}: {escape(row.refusal)}")


def _table(groups: list[list[_Row]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("schedule")
    table.add_column("parameters")
    for heading in ("makespan", "idle", "in span", "peak"):
        table.add_column(heading, justify="right")
    for group in groups:
        _add(table, group)
        table.add_section()
    return table


def _add(table: Table, group: list[_Row]) -> None:
    """Rows that are compared with each other; the least of every column is bold and starred."""
    best = [min((column[k] for row in group if (column := _figures(row))), default=None) for k in range(4)]
    for row in group:
        name, parameters = escape(row.name), said(row.parameters)
        figures = _figures(row)
        if figures is None:
            table.add_row(name, parameters, *["–  "] * len(best), style="dim")
            continue
        shown = [f"{figures[0]:g}", f"{figures[1]:.1%}", f"{figures[2]:.1%}", f"{figures[3]:g}"]
        cells = (
            f"[bold]{text} *[/]" if figure == least else f"{text}  "
            for text, figure, least in zip(shown, figures, best, strict=True)
        )
        table.add_row(name, parameters, *cells)


def _figures(row: _Row) -> tuple[float, float, float, float] | None:
    """Makespan, both bubbles and the largest peak, in the order of the table's columns."""
    if row.timeline is None:
        return None
    bubble, peak = row.timeline.bubble, max(row.timeline.peak_memory)
    return row.timeline.makespan, bubble.idle, bubble.span, peak * row.share
