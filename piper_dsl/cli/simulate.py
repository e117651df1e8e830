"""piper-dsl simulate: how long does it take, and where is time lost?"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from ..expand import DEFAULT_MAX_OPS
from ..simulate import Timeline
from ..simulate import simulate as run_simulation
from .common import (
    CostOptions,
    File,
    Format,
    FormatOption,
    LatencyOption,
    MaxOps,
    Parameters,
    PlacementOption,
    ProfileOption,
    TransportOption,
    checked,
    console,
    costs_of,
    errors,
    print_json,
)


def simulate(
    file: File,
    param: Parameters = None,
    cost: CostOptions = None,
    costs: ProfileOption = None,
    latency: LatencyOption = None,
    transport: TransportOption = "buffered",
    placement: PlacementOption = "auto",
    released_at_input: Annotated[
        float,
        typer.Option("--released-at-input", min=0.0, max=1.0, help="Part of an activation freed at I, not W."),
    ] = 0.0,
    format: FormatOption = Format.TEXT,
    max_ops: MaxOps = DEFAULT_MAX_OPS,
) -> None:
    """Simulate a schedule: makespan, bubbles, memory, bounds.

    Times are in the unit of the costs; without any, F = I = W = 1 and B = 2.

    Example: piper-dsl simulate zb_h1 -p p=4 -p m=8 --cost F=1.2 --latency 0.1
    """
    with errors():
        chosen = costs_of(cost, latency, costs)
        timeline = run_simulation(checked(file, param, max_ops, transport, placement), chosen, transport, placement)
    if format is Format.JSON:
        print_json(_document(timeline, released_at_input))
    else:
        _print(timeline, released_at_input)


def _document(timeline: Timeline, released_at_input: float) -> dict[str, Any]:
    return {
        "makespan": timeline.makespan,
        "bubble": {"idle": timeline.bubble.idle, "span": timeline.bubble.span},
        "ranks": [
            {**vars(rank), "peak_activations": _number(peak)}
            for rank, peak in zip(timeline.ranks, timeline.peaks(released_at_input), strict=True)
        ],
        "critical_path": [str(operation) for operation in timeline.critical_path],
        "bounds": {"busiest_rank": timeline.bounds.busiest_rank, "chain": timeline.bounds.chain},
        "transfer_wait": timeline.transfer_wait,
    }


def _number(value: float) -> int | float:
    return int(value) if value.is_integer() else value


def _print(timeline: Timeline, released_at_input: float) -> None:
    terminal, schedule, bubble = console(), timeline.schedule, timeline.bubble
    terminal.print(f"[bold]{schedule.name}[/]  {_parameters(timeline)}")
    terminal.print(f"makespan   {timeline.makespan:g}")
    terminal.print(
        f"bubble     {bubble.idle:.1%} of all time idle, {bubble.span:.1%} within the longest span of a rank"
    )
    if timeline.transport != "buffered":
        lost = f"{timeline.transfer_wait:g} of the makespan"
        terminal.print(f"transfers  on transport {timeline.transport}: their order alone costs {lost}")
    bounds = timeline.bounds
    terminal.print(f"bounds     busiest rank {bounds.busiest_rank:g}, longest chain {bounds.chain:g}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("rank", "busy", "idle", "in span", "peak activations", "start", "end"):
        table.add_column(heading, justify="right")
    for rank, peak in zip(timeline.ranks, timeline.peaks(released_at_input), strict=True):
        times = (rank.busy, rank.idle, rank.span_idle, peak, rank.start, rank.end)
        table.add_row(str(rank.rank), *(f"{value:g}" for value in times))
    terminal.print(table)
    if released_at_input:
        terminal.print(f"peak activations with {released_at_input:g} of each released at I, the rest at W")
    path = [str(operation) for operation in timeline.critical_path]
    shown = path if len(path) <= 40 else [*path[:20], "…", *path[-19:]]
    terminal.print(f"critical path  {' → '.join(shown)}")


def _parameters(timeline: Timeline) -> str:
    return "  ".join(f"{name}={value}" for name, value in timeline.schedule.parameters.items())
