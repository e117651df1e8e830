"""How schedules, timelines and programs show themselves in a notebook.

A timeline is its picture, a schedule that of its timeline under its own costs (up to where it is stuck, if it is),
a program a table. Pictures are drawn rooms above the values they show, so the values get the methods that
notebooks look for here, with ``import piper_dsl``, and their own rooms know nothing of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

from .ir.costs import Costs
from .ir.operations import Kind
from .ir.schedule import Schedule
from .lower.program import Code, Instruction, Program
from .simulate.timeline import Timeline

if TYPE_CHECKING:
    from .draw import Scene

__all__ = ["program_html", "register", "schedule_svg", "timeline_svg"]

_MOST_INSTRUCTIONS = 200
"""A table shows no more of a rank."""


def register() -> None:
    """Gives the values their ``_repr_svg_`` and ``_repr_html_``."""
    for shown, name, show in _METHODS:
        setattr(shown, name, show)


def timeline_svg(timeline: Timeline) -> str | None:
    """The picture of a timeline; where it cannot be made, None and a warning that says why."""
    from .draw import View, find_scene

    return _svg(find_scene(timeline, View()))


def schedule_svg(schedule: Schedule) -> str | None:
    """The same for a schedule, under its own costs."""
    from .draw import View, find_scene, run_until_stuck

    timeline, heads = run_until_stuck(schedule, Costs())
    return _svg(find_scene(timeline, View(), heads))


def _svg(scene: Scene) -> str | None:
    from .draw import FORMATS, DrawError

    try:
        return FORMATS[".svg"]([scene]).decode()
    except DrawError as error:
        warnings.warn(str(error), stacklevel=2)
        return None


def program_html(program: Program) -> str:
    """A row for every rank, a cell for every instruction in the colour of its kind."""
    rows = "".join(_row(program, rank) for rank in range(program.ranks))
    heading = f"{escape(program.name)}: {len(program):,} instructions"
    return f'<table><caption style="text-align:left">{heading}</caption><tbody>{rows}</tbody></table>'


def _row(program: Program, rank: int) -> str:
    first, after = (int(offset) for offset in program.offsets[rank : rank + 2])
    shown = range(first, min(after, first + _MOST_INSTRUCTIONS))
    cells = "".join(_cell(program.instruction(index)) for index in shown)
    rest = f"<td>… {after - shown.stop:,} more</td>" if after > shown.stop else ""
    return f'<tr><th scope="row" style="white-space:nowrap">rank {rank}</th>{cells}{rest}</tr>'


def _cell(instruction: Instruction) -> str:
    from .draw import paint

    if instruction.code is Code.FREE:
        return f"<td>{instruction}</td>"
    look = paint(Kind(instruction.code))
    return f'<td style="background:{look.fill};color:{look.ink}">{instruction}</td>'


_METHODS: tuple[tuple[type, str, Callable[..., str | None]], ...] = (
    (Timeline, "_repr_svg_", timeline_svg),
    (Schedule, "_repr_svg_", schedule_svg),
    (Program, "_repr_html_", program_html),
)
