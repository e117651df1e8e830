"""piper-dsl visualize: the timelines of schedules as pictures or as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from ..diagnostics import Diagnostic
from ..expand import DEFAULT_MAX_OPS
from ..simulate.timeline_file import TIMELINE_SUFFIX
from .common import (
    FINDINGS,
    MaxOps,
    ParameterValues,
    console,
    errors,
    loaded,
    print_findings,
    values_of,
)
from .drawn import Drawn
from .options import Sending, Timing, grouped
from .outputs import formats_of, write_all
from .subjects import find_subjects

if TYPE_CHECKING:
    from ..draw import Theme, View
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


@dataclass(frozen=True)
class Look:
    """How time is drawn."""

    theme: Annotated[ThemeName, typer.Option(help="The colours of a picture.")] = ThemeName.LIGHT
    transfers: Annotated[bool, typer.Option("--transfers", help="Draw an arrow for every transfer.")] = False
    critical_path: Annotated[bool, typer.Option("--critical-path", help="Outline what decides the makespan.")] = False
    memory: Annotated[bool, typer.Option("--memory", help="Draw what every rank holds under its lane.")] = False
    start: Annotated[float | None, typer.Option("--from", min=0.0, help="Draw from this time on.")] = None
    end: Annotated[float | None, typer.Option("--to", min=0.0, help="Draw up to this time.")] = None
    ranks: Annotated[str | None, typer.Option(metavar="R,A-B", help="Draw these ranks only, as in 0,4-7.")] = None

    @property
    def view(self) -> View:
        """A usage error for ranks that are none."""
        from ..draw import THEMES, View

        theme, ranks = THEMES[self.theme.value], _ranks(self.ranks)
        return View(theme, self.transfers, self.critical_path, self.memory, self.start, self.end, ranks)


@grouped
def visualize(
    files: Annotated[
        list[str], typer.Argument(help=".pipe or .csv files, names of the library, .json timelines of run, or -.")
    ],
    output: Annotated[
        list[str] | None,
        typer.Option("-o", "--output", help="Where to draw, by ending; -.svg is standard output. Repeatable."),
    ] = None,
    param: ParameterValues = None,
    *,
    timing: Timing,
    sending: Sending,
    look: Look,
    graph: Annotated[Graph | None, typer.Option(help="Draw stages, or what operations need, not time.")] = None,
    width: Annotated[int | None, typer.Option(min=40, help="Columns of text without -o; else the terminal's.")] = None,
    max_ops: MaxOps = DEFAULT_MAX_OPS,
) -> None:
    """Draw the timeline of a schedule: svg, png, pdf, html, json (a trace), dot, txt; else on the terminal.

    Several schedules, of the same model as in compare, stand under one time axis; what differs from the first
    is marked. So does a timeline that run measured; a schedule beside it has its costs, or those of --costs.

    A schedule with findings is drawn as far as it runs, what is stuck is marked, and the exit code is 1.

    Several values of parameters make one page with a slider for each: -p m=8,16,32 -o page.html.

    Example: piper-dsl visualize 1f1b -p p=4 -p m=8 --transfers -o 1f1b.svg -o 1f1b.png

    Example: piper-dsl visualize 1f1b -p p=2 -p m=4 measured.json -o predicted_and_measured.svg
    """
    view = look.view
    if width is not None and output:
        raise typer.BadParameter("--width is that of text on the terminal: leave it out beside -o")
    with errors():
        if graph:
            if len(files) > 1 or not output:
                raise typer.BadParameter("a graph is one schedule's, and a picture: name one file, and -o graph.svg")
            if files[0].endswith(TIMELINE_SUFFIX):
                raise typer.BadParameter(f"a graph shows no time: name the schedule that ran, not {files[0]}")
            if timing.given or look != Look(theme=look.theme):
                raise typer.BadParameter("a graph shows no time: leave out costs, ranks and what is drawn in time")
            _draw_graph(graph, loaded(files[0], param, max_ops), sending.transport, view.theme, output)
            return
        values = values_of(param)
        subjects = find_subjects(files, param, timing)
        subjects = replace(subjects, shared=subjects.shared and len(files) > 1)
        drawn = Drawn(files, subjects, sending, max_ops, view)
        if any(len(several) > 1 for several in values.values()):
            findings = _draw_sweep(drawn, values, output or ())
        else:
            findings = _draw(drawn, {name: value for name, (value,) in values.items()}, output or (), width)
    if findings:
        raise typer.Exit(FINDINGS)


def _draw(
    drawn: Drawn, parameters: Mapping[str, int], output: Sequence[str], width: int | None
) -> Sequence[Diagnostic]:
    """Pictures, or text on the terminal; the findings. Raises DrawError."""
    from ..draw import find_format, scenes_text

    outputs = formats_of(output, find_format, ".txt")
    scenes, findings = drawn.scenes(parameters)
    print_findings(findings)
    if not outputs:
        terminal = console()
        terminal.print(scenes_text(scenes, width or terminal.width))
    write_all(outputs, scenes)
    return findings


def _draw_sweep(drawn: Drawn, values: Mapping[str, Sequence[int]], output: Sequence[str]) -> Sequence[Diagnostic]:
    """A page for every combination of values; the findings of all. Raises DrawError."""
    from ..draw import find_sweep_format

    outputs = formats_of(output, find_sweep_format, ".html")
    if not outputs:
        raise typer.BadParameter("several values of a parameter make a page: add -o page.html")
    sweep, findings = drawn.sweep(values)
    print_findings(findings)
    write_all(outputs, sweep)
    return findings


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
