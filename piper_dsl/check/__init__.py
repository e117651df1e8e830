"""Findings about a schedule, decided before anything runs. One file a check."""

from __future__ import annotations

from ..diagnostics import Diagnostic, in_source_order
from ..ir.schedule import Schedule
from .complete import check_complete
from .order import check_order

__all__ = ["check"]


def check(schedule: Schedule) -> tuple[Diagnostic, ...]:
    """Everything wrong with a schedule, in source order; empty if it can run.

    It is complete (every stage runs every microbatch forward once and, unless the schedule only
    evaluates, backward once, on the rank the placement says) and its order has no cycle.
    """
    return in_source_order([*check_complete(schedule), *check_order(schedule)])
