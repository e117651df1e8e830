"""piper-dsl visualize: the timelines of schedules as pictures or as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from ..diagnostics import Diagnostic
from ..expand import DEFAULT_MAX_OPS
from .common import (
    FINDINGS,
    CostOptions,
    LatencyOption,
    MaxOps,
    Parameters,
    PlacementOption,
    ProfileOption,
    TransportOption,
    check_names,
    console,
    errors,
    loaded,
    print_findings,
)
from .outputs import formats_of, write_all
from .subjects import find_subjects

if TYPE_CHECKING:
    from ..draw import Ran, Theme
    from ..ir.costs import Costs
    from ..ir.schedule import Schedule


_MOST_RANKS = 100_000
"""No schedule has more; what is asked for beyond is answered by the first that does not exist."""


class ThemeName(str, Enum):
    """For what a picture is made."""

    LIGHT = "light"
    DARK = "dark"
    PRINT = "print"


class Graph(str, Enum):
    """What is drawn of a schedule besides its time."""

    STAGES = "stages"
    NEEDS = "needs"


def visualize(
    files: Annotated[
        list[str], typer.Argument(help=".pipe or .csv files, names of the library, .json timelines of run, or -.")
    ],
    output: Annotated[
        list[str] | None,
        typer.Option("-o", "--output", help="Where to draw, by ending; -.svg is standard output. Repeatable."),
    ] = None,
    param: Parameters = None,
    cost: CostOptions = None,
    costs: ProfileOption = None,
    latency: LatencyOption = None,
    transport: TransportOption = "buffered",
    placement: PlacementOption = "auto",
    theme: Annotated[ThemeName, typer.Option(help="The colours of a picture.")] = ThemeName.LIGHT,
    transfers: Annotated[bool, typer.Option("--transfers", help="Draw an arrow for every transfer.")] = False,
    critical_path: Annotated[bool, typer.Option("--critical-path", help="Outline what decides the makespan.")] = False,
    memory: Annotated[bool, typer.Option("--memory", help="Draw what every rank holds under its lane.")] = False,
    start: Annotated[float | None, typer.Option("--from", min=0.0, help="Draw from this time on.")] = None,
    end: Annotated[float | None, typer.Option("--to", min=0.0, help="Draw up to this time.")] = None,
    graph: Annotated[Graph | None, typer.Option(help="Draw stages, or what operations need, not time.")] = None,
    ranks: Annotated[str | None, typer.Option(metavar="R,A-B", help="Draw these ranks only, as in 0,4-7.")] = None,
    width: Annotated[int | None, typer.Option(min=40, help="Columns of text without -o; else the terminal's.")] = None,
    max_ops: MaxOps = DEFAULT_MAX_OPS,
) -> None:
    """Draw the timeline of a schedule: svg, png, pdf, html, json (a trace), dot, txt; else on the terminal.

    Several schedules, of the same model as in compare, stand under one time axis; what differs from the first
    is marked. So does a timeline that run measured; a schedule beside it has its costs, or those of --costs.

    A schedule with findings is drawn as far as it runs, what is stuck is marked, and the exit code is 1.

    Example: piper-dsl visualize 1f1b -p p=4 -p m=8 --transfers -o 1f1b.svg -o 1f1b.png

    Example: piper-dsl visualize 1f1b -p p=2 -p m=4 measured.json -o predicted_and_measured.svg
    """
    from ..check import check
    from ..draw import THEMES, Ran, View, find_format, find_scenes, scenes_text

    check_names(transport, placement)
    view = View(THEMES[theme.value], transfers, critical_path, memory, start, end, _ranks(ranks))
    findings: list[Diagnostic] = []
    with errors():
        if graph:
            if len(files) > 1 or not output:
                raise typer.BadParameter("a graph is one schedule's, and a picture: name one file, and -o graph.svg")
            if any((cost, costs, latency, transfers, critical_path, memory, start, end, ranks)):
                raise typer.BadParameter("a graph shows no time: leave out costs, ranks and what is drawn in time")
            _draw_graph(graph, loaded(files[0], param, max_ops), transport, view.theme, output)
            return
        outputs = formats_of(output or (), find_format, ".txt")
        subjects = find_subjects(files, param, cost, latency, costs)
        subjects = replace(subjects, shared=subjects.shared and len(files) > 1)
        ran = []
        for file in files:
            if file in subjects.measured:
                ran.append(Ran(subjects.measured[file]))
                continue
            schedule = loaded(file, param, max_ops)
            found = check(schedule, transport)
            ran.append(_run(schedule, subjects.costs_of(schedule), transport, placement, len(found)))
            findings += found
        print_findings(findings)
        scenes = find_scenes(ran, view)
        if not outputs:
            terminal = console()
            terminal.print(scenes_text(scenes, width or terminal.width))
        write_all(outputs, scenes)
    if findings:
        raise typer.Exit(FINDINGS)


def _run(schedule: Schedule, costs: Costs, transport: str, placement: str, findings: int) -> Ran:
    """What runs of a schedule in thought: all, or with findings as much as there is."""
    from ..draw import Ran, run_until_stuck
    from ..simulate import simulate

    if findings:
        return Ran(*run_until_stuck(schedule, costs), findings)
    return Ran(simulate(schedule, costs, transport, placement))


def _draw_graph(graph: Graph, schedule: Schedule, transport: str, theme: Theme, output: Sequence[str]) -> None:
    """The stage graph, or what operations need. Raises DrawError, and Exit after findings are printed."""
    from ..check import check
    from ..draw import draw_needs, draw_stages, find_graph_format

    outputs, findings = formats_of(output, find_graph_format, ".svg"), check(schedule, transport)
    print_findings(findings)
    write_all(outputs, draw_stages(schedule, theme) if graph is Graph.STAGES else draw_needs(schedule, theme))
    if findings:
        raise typer.Exit(FINDINGS)


def _ranks(text: str | None) -> tuple[int, ...] | None:
    """Ranks as `0,4-7`."""
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        first, to, last = part.partition("-")
        try:
            found += islice(range(int(first), int(last if to else first) + 1), _MOST_RANKS)
        except ValueError:
            raise typer.BadParameter(f"{text!r}: write --ranks 0,4-7") from None
    return tuple(found)
