"""piper-dsl visualize: the timeline as a picture or as text."""

from __future__ import annotations

from typing import Annotated

import typer

from ..expand import DEFAULT_MAX_OPS
from .common import (
    CostOptions,
    File,
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
)


def visualize(
    file: File,
    output: Annotated[
        list[str] | None,
        typer.Option("-o", "--output", help="Where to draw; the ending chooses the format. May be repeated."),
    ] = None,
    param: Parameters = None,
    cost: CostOptions = None,
    costs: ProfileOption = None,
    latency: LatencyOption = None,
    transport: TransportOption = "buffered",
    placement: PlacementOption = "auto",
    width: Annotated[int | None, typer.Option(min=40, help="Columns of the text; default: the terminal's.")] = None,
    max_ops: MaxOps = DEFAULT_MAX_OPS,
) -> None:
    """Draw the timeline of a schedule: svg, png, dot or txt; without -o, as text on the terminal.

    Example: piper-dsl visualize 1f1b -p p=4 -p m=8 -o 1f1b.svg
    """
    from ..draw import draw, timeline_text
    from ..simulate import simulate

    with errors():
        chosen = costs_of(cost, latency, costs)
        schedule = checked(file, param, max_ops, transport, placement, costs=chosen)
        timeline = simulate(schedule, chosen, transport, placement)
        terminal = console()
        if not output:
            terminal.print(timeline_text(timeline, width or terminal.width))
        for path in output or ():
            draw(timeline, path)
            terminal.print(f"wrote {path}")
