"""piper-dsl simulate: how long does it take, and where is time lost?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rich.markup import escape
from rich.table import Table

from ..expand import DEFAULT_MAX_OPS
from ..ir.memory import ACTIVATIONS, Memory
from ..simulate import Timeline
from ..simulate import simulate as run_simulation
from .common import (
    File,
    Format,
    FormatOption,
    MaxOps,
    Parameters,
    checked,
    console,
    errors,
    print_json,
    said,
)
from .options import Limits, Released, Sending, Timing, grouped, released


@grouped
def simulate(
    file: File,
    param: Parameters = None,
    *,
    timing: Timing,
    sending: Sending,
    limits: Limits,
    released_at_input: Released = None,
    format: FormatOption = Format.TEXT,
    max_ops: MaxOps = DEFAULT_MAX_OPS,
) -> None:
    """Simulate a schedule: makespan, bubbles, memory, bounds.

    Times are in the unit of the costs; without any, F = I = W = 1 and B = 2.

    Example: piper-dsl simulate zb_h1 -p p=4 -p m=8 --cost F=1.2 --latency 0.1
    """
    with errors():
        chosen = released(timing.chosen(), released_at_input)
        schedule = checked(file, param, max_ops, sending.transport, limits.memory, chosen)
        timeline = run_simulation(schedule, chosen, sending.transport, sending.placement)
    if format is Format.JSON:
        print_json(_document(timeline))
    else:
        _print(timeline)


def _document(timeline: Timeline) -> dict[str, Any]:
    return {
        "makespan": timeline.makespan,
        "bubble": {"idle": timeline.bubble.idle, "span": timeline.bubble.span},
        "ranks": [
            {**vars(rank), "peak_at": str(rank.peak_at) if rank.peak_at else None, "standing_memory": standing}
            for rank, standing in zip(timeline.ranks, _standing(timeline), strict=True)
        ],
        "critical_path": [str(operation) for operation in timeline.critical_path],
        "bounds": {"busiest_rank": timeline.bounds.busiest_rank, "chain": timeline.bounds.chain},
        "limiting_stage": timeline.limiting_stage,
        "transfer_wait": timeline.transfer_wait,
    }


def _standing(timeline: Timeline) -> list[float]:
    standing: list[float] = timeline.costs.memory.standing(timeline.schedule).tolist()
    return standing


def _print(timeline: Timeline) -> None:
    terminal, schedule, bubble = console(), timeline.schedule, timeline.bubble
    terminal.print(f"[bold]{escape(schedule.name)}[/]  {said(schedule.parameters)}")
    terminal.print(f"makespan   {timeline.makespan:g}")
    terminal.print(
        f"bubble     {bubble.idle:.1%} of all time idle, {bubble.span:.1%} within the longest span of a rank"
    )
    if timeline.transport != "buffered":
        lost = f"{timeline.transfer_wait:g} of the makespan"
        terminal.print(f"transfers  on transport {timeline.transport}: their order alone costs {lost}")
    bounds = timeline.bounds
    terminal.print(f"bounds     busiest rank {bounds.busiest_rank:g}, longest chain {bounds.chain:g}")
    if timeline.limiting_stage is not None:
        terminal.print(f"limit      stage {timeline.limiting_stage}, whose operations take the longest")
    terminal.print(f"memory     {_memory(timeline.costs.memory)}")
    terminal.print(_table(timeline))
    path = [str(operation) for operation in timeline.critical_path]
    shown = path if len(path) <= 40 else [*path[:20], "…", *path[-19:]]
    terminal.print(f"critical path  {' → '.join(shown)}")


def _memory(memory: Memory) -> str:
    """What the column of peaks counts, and when a split backward frees it."""
    part = memory.released_at_input
    counted = (
        "activations of one microbatch of one stage"
        if replace(memory, released_at_input=0.0) == ACTIVATIONS
        else "sizes of the profile"
    )
    freed = f"{part:g} of it at I, the rest at W" if part else "all of it at W"
    return f"in {counted}; a split backward frees {freed}"


def _table(timeline: Timeline) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("rank", "busy", "idle", "in span", "peak memory", "at", "start", "end"):
        table.add_column(heading, justify="right")
    for rank in timeline.ranks:
        times = [f"{value:g}" for value in (rank.busy, rank.idle, rank.span_idle)]
        table.add_row(
            str(rank.rank), *times, f"{rank.peak_memory:g}", str(rank.peak_at or ""), f"{rank.start:g}", f"{rank.end:g}"
        )
    return table
