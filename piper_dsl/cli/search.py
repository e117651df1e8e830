"""piper-dsl search: the best order for given stages, costs and memory."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ..expand import DEFAULT_MAX_OPS
from ..search import Found, Progress
from ..search import search as run_search
from ..search.answer import measured, peaks
from ..search.exact import available
from ..search.problem import Measure
from ..simulate import Timeline
from .common import (
    File,
    Format,
    FormatOption,
    MaxOps,
    Parameters,
    console,
    errors,
    fit,
    loaded,
    print_json,
    say_wrote,
    write_text,
)
from .options import Limits, Released, Timing, Transported, grouped, released

__all__ = ["search"]


class Backward(str, Enum):
    """Which backwards are tried."""

    ANY = "any"
    SPLIT = "split"
    WHOLE = "whole"


@grouped
def search(
    file: File,
    param: Parameters = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the order here, as a .pipe file.")
    ] = None,
    *,
    limits: Limits,
    timing: Timing,
    sending: Transported,
    released_at_input: Released = None,
    measure: Annotated[
        Measure,
        typer.Option("--measure", help="What is to be short: the makespan, or a rank's span from first to last."),
    ] = Measure.MAKESPAN,
    backward: Annotated[
        Backward, typer.Option("--backward", help="Whole backwards, split ones, or any.")
    ] = Backward.ANY,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same answer.")] = 0,
    time_limit: Annotated[float, typer.Option("--time-limit", metavar="SECONDS", help="Stop after so long.")] = 60.0,
    format: FormatOption = Format.TEXT,
    max_ops: MaxOps = DEFAULT_MAX_OPS,
) -> None:
    """Search for the best order of a schedule's operations, under costs and limits of memory.

    FILE says sizes, placement, stage graph and cost lines; its own order is one to start from. What is found is
    compared with the library's schedules under the same costs and limits, and with a lower bound. Ctrl-C keeps
    the best found so far. With OR-tools, which the extra `search` installs, small problems are solved exactly.

    Example: piper-dsl search zb_h1 -p p=4 -p m=12 --cost F=5 --cost I=6 --cost W=4 --memory-limit 5 -o best.pipe
    """
    if not time_limit > 0:
        raise typer.BadParameter("--time-limit must be more than 0 seconds")
    with errors():
        chosen, template = released(timing.chosen(), released_at_input), loaded(file, param, max_ops)
        fit(chosen, template)
        try:
            found = run_search(
                template,
                chosen,
                memory_limit=limits.memory,
                transport=sending.transport,
                measure=measure.value,
                backward=backward.value,
                seed=seed,
                time_limit=time_limit,
                watch=_Reporter(),
            )
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        if output is not None:
            write_text(output, found.to_pipe())
    if format is Format.JSON:
        print_json(_document(found))
    else:
        _print(found, output)


class _Reporter:
    """Says what is the best so far: whenever another method finds it, else once a second."""

    def __init__(self) -> None:
        self._said = Progress(-1.0, "", 0.0)

    def __call__(self, progress: Progress) -> None:
        if progress.origin != self._said.origin or progress.seconds > self._said.seconds + 1.0:
            self._said = progress
            console(errors=True).print(
                f"[dim]{progress.seconds:6.1f} s  {progress.value:g}  {escape(progress.origin)}[/]"
            )


def _document(found: Found) -> dict[str, Any]:
    bound = found.bound
    return {
        "measure": found.problem.measure.value,
        "value": found.value,
        "origin": found.origin,
        "bound": {
            "value": bound.value,
            "resource": bound.resource.value,
            "rank": bound.rank,
            "why": bound.why,
            "explained": bound.explained,
            "without_memory_limits": bound.without_memory,
            "without_latency": bound.without_latency,
        },
        "gap": found.gap,
        "proven": found.proven,
        "seconds": found.seconds,
        "stopped": found.stopped or None,
        "schedules": [
            _figures("searched", found.timeline, found, fits=True),
            *(_figures(known.name, known.timeline, found, fits=known.fits) for known in found.known),
        ],
        "pipe": found.to_pipe(),
    }


def _figures(name: str, timeline: Timeline, found: Found, *, fits: bool) -> dict[str, Any]:
    return {
        "name": name,
        "value": measured(timeline, found.problem.measure),
        "makespan": timeline.makespan,
        "bubble": {"idle": timeline.bubble.idle, "span": timeline.bubble.span},
        "peak_memory": peaks(timeline.schedule, found.problem),
        "fits": fits,
    }


def _print(found: Found, output: Path | None) -> None:
    terminal, bound, measure = console(), found.bound, found.problem.measure.value
    ended = f", ended by the {found.stopped}" if found.stopped else ""
    terminal.print(
        f"[bold]{escape(found.schedule.name)}[/]  by {escape(found.origin)}, in {found.seconds:.1f} s{ended}"
    )
    verdict = "the best there is" if found.proven else f"at most {found.gap:.1%} too long"
    terminal.print(f"{measure:<10} {found.value:g}, {verdict}")
    terminal.print(f"bound      {bound.value:g}: {bound.why}")
    terminal.print(f"limited by {_limited_by(found)}")
    terminal.print(_table(found))
    if not found.proven and not available():
        terminal.print(escape("the exact solver may tell more: pip install 'piper-dsl[search]'"))
    if output:
        say_wrote(output)
    else:
        terminal.print("write the order to a file with -o FILE")


def _limited_by(found: Found) -> str:
    """The resource that sets the bound, and what more of the others would give."""
    bound = found.bound
    names = {
        "stage": f"the stages of rank {bound.rank}",
        "memory": f"the memory of rank {bound.rank}",
        "link": "the links",
    }
    part = f", for {bound.explained:g} of it" if bound.explained < bound.value else ""
    without = f"the bound is {bound.without_memory:g} without limits of memory"
    return f"{names[bound.resource.value]}{part}; {without}, {bound.without_latency:g} if links took no time"


def _table(found: Found) -> Table:
    """What was found above the library's schedules; the least of every column that fits is bold and starred."""
    rows = [("searched", found.timeline, True), *((k.name, k.timeline, k.fits) for k in found.known)]
    rows.sort(key=lambda row: (not row[2], measured(row[1], found.problem.measure)))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("schedule")
    for heading in ("makespan", "span", "idle", "in span", "peak memory"):
        table.add_column(heading, justify="right")
    table.add_column("")
    least = min(measured(timeline, found.problem.measure) for _, timeline, fits in rows if fits)
    for name, timeline, fits in rows:
        best = fits and measured(timeline, found.problem.measure) <= least
        shown = " ".join(f"{peak:g}" for peak in peaks(timeline.schedule, found.problem))
        times = (f"{measured(timeline, measure):g}" for measure in (Measure.MAKESPAN, Measure.SPAN))
        figures = (*times, f"{timeline.bubble.idle:.1%}", f"{timeline.bubble.span:.1%}", shown)
        style = "bold" if best else None if fits else "dim"
        table.add_row(escape(name), *figures, "*" if best else "" if fits else "does not fit", style=style)
    return table
