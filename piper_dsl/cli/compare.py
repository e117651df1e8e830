"""piper-dsl compare: several schedules side by side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from ..diagnostics import PipeError
from ..expand import DEFAULT_MAX_OPS
from ..ir.costs import Costs
from ..ir.operations import Kind
from ..ir.schedule import Schedule
from ..simulate import Timeline
from .common import (
    FINDINGS,
    CostOptions,
    Format,
    FormatOption,
    LatencyOption,
    MaxOps,
    PlacementOption,
    ProfileOption,
    TransportOption,
    checked,
    console,
    costs_of,
    errors,
    print_json,
)

__all__ = ["compare", "share_of_model"]


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


def compare(
    files: Annotated[list[str], typer.Argument(help=".pipe or .csv files, or names of library schedules.")],
    param: Annotated[
        list[str] | None,
        typer.Option("-p", "--param", metavar="NAME=A,B,…", help="Values of a parameter. May be repeated."),
    ] = None,
    cost: CostOptions = None,
    costs: ProfileOption = None,
    latency: LatencyOption = None,
    transport: TransportOption = "buffered",
    placement: PlacementOption = "auto",
    format: FormatOption = Format.TEXT,
    max_ops: MaxOps = DEFAULT_MAX_OPS,
) -> None:
    """Simulate several schedules under the same parameters and costs, in one table; the best are marked.

    The model is the same for all: where a rank has several stages, each is a part of what it has otherwise, so
    costs and activations are divided by their number, unless a profile says what the stages cost.
    A schedule that does not take a combination of parameters says why. The exit code is 1 if none does.

    Example: piper-dsl compare 1f1b zb_h1 zb_h2 -p p=4 -p m=8,16,32 --latency 0.2
    """
    combinations = list(_combinations(param))
    with errors():
        chosen = costs_of(cost, latency, costs)
    groups = [
        [_row(file, parameters, chosen, transport, placement, max_ops, costs is None) for file in files]
        for parameters in combinations
    ]
    if format is Format.JSON:
        print_json({"schedules": [_document(row) for group in groups for row in group]})
    else:
        console().print(_table(groups))
    if not any(row.timeline for group in groups for row in group):
        raise typer.Exit(FINDINGS)


def _combinations(options: Iterable[str] | None) -> Iterable[dict[str, int]]:
    """Every combination of the values given for parameters."""
    names, values = [], []
    for option in options or ():
        name, _, listed = option.partition("=")
        try:
            values.append([int(value) for value in listed.split(",")])
        except ValueError:
            raise typer.BadParameter(f"{option!r}: write -p name=values, as in -p m=8,16,32") from None
        names.append(name.strip())
    return (dict(zip(names, chosen, strict=True)) for chosen in product(*values))


def _row(
    file: str, parameters: dict[str, int], costs: Costs, transport: str, placement: str, max_ops: int, scaled: bool
) -> _Row:
    from ..simulate import simulate

    given = [f"{name}={value}" for name, value in parameters.items()]
    try:
        schedule = checked(file, given, max_ops, transport, placement, costs=costs)
    except PipeError as error:
        return _Row(file, parameters, None, error.diagnostics[0].message)
    share = schedule.ranks / schedule.stages if scaled else 1.0
    timeline = simulate(schedule, share_of_model(costs, schedule, share), transport, placement)
    return _Row(schedule.name, dict(schedule.parameters), timeline, share=share)


def share_of_model(costs: Costs, schedule: Schedule, share: float) -> Costs:
    """The costs with every stage that share of what it is; latency stays as it is."""
    table = costs.table(schedule)
    scaled = {kind.name: (table[kind] * share).tolist() for kind in Kind}
    for kinds, cost in {**schedule.overlap_costs, **costs.kinds}.items():
        if len(kinds) > 1:
            own = np.broadcast_to(np.asarray(cost, dtype=float), schedule.stages)
            own = np.where(np.isnan(own), sum(table[kind] for kind in kinds), own)
            scaled["&".join(kind.name for kind in kinds)] = (own * share).tolist()
    return Costs(
        latency=costs.latency, overhead=costs.overhead, bandwidth=costs.bandwidth, memory=costs.memory, **scaled
    )


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
    }


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
        name, parameters = escape(row.name), " ".join(f"{name}={value}" for name, value in row.parameters.items())
        figures = _figures(row)
        if figures is None:
            table.add_row(name, parameters, f"[dim]{escape(row.refusal)}[/]")
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
