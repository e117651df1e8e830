"""Is there room for any order at all?"""

from __future__ import annotations

from dataclasses import replace

from ..diagnostics import Diagnostic, PipeError
from ..ir.memory import ACTIVATIONS
from .orders import Candidate, Orders
from .problem import Form, Problem, slack_of

__all__ = ["one_at_a_time", "with_room"]


def one_at_a_time(orders: Orders) -> Candidate:
    """Microbatches one after the other: slow, and within every limit that can be met."""
    rows = [orders.loads.in_turn(rank) for rank in range(orders.jobs.placement.ranks)]
    candidate = orders.candidate(rows, "one at a time")
    assert candidate is not None, "limits were looked at before"
    return candidate


def with_room(problem: Problem) -> Problem:
    """The problem with those forms that its limits have room for. Raises PipeError (P602) where there are none."""
    short = {form: _too_small(problem, form) for form in problem.forms}
    fitting = tuple(form for form, ranks in short.items() if not ranks)
    if not fitting:
        raise PipeError(_finding(problem, min(short, key=lambda form: sum(_least(problem, form)))))
    return replace(problem, forms=fitting)


def _least(problem: Problem, form: Form) -> list[float]:
    """The smallest limit of every rank."""
    loads = Orders(problem.shortened(min(2, problem.template.microbatches)), form).loads
    if problem.costs.memory.keeps_sent:
        loads = Orders(problem, form).loads
    standing = problem.costs.memory.standing(problem.template).tolist()
    return [round(held + loads.peak(loads.in_turn(rank)), 9) for rank, held in enumerate(standing)]


def _too_small(problem: Problem, form: Form) -> list[int]:
    least = _least(problem, form)
    return [rank for rank, limit in enumerate(problem.limits) if limit < least[rank] - slack_of(limit)]


def _finding(problem: Problem, form: Form) -> Diagnostic:
    least = _least(problem, form)
    rank = _too_small(problem, form)[0]
    unit = " activations" if problem.costs.memory == ACTIVATIONS else ""
    message = f"rank {rank} may hold {problem.limits[rank]:.12g}{unit}, and no order holds less than {least[rank]:.12g}"
    smallest = ",".join(f"{one:.12g}" for one in (least[:1] if len(set(least)) == 1 else least))
    held = "a microbatch on its way back is held on every stage that it came through"
    return Diagnostic("P602", message, None, f"{held}; the smallest limit is {smallest}")
