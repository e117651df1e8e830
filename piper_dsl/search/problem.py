"""What is searched for: an order of given operations, under costs and limits of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from math import floor, log10

import numpy as np

from ..diagnostics import Diagnostic, PipeError
from ..expand.jobs import FORMS, Jobs
from ..ir.costs import Costs
from ..ir.operations import Kind
from ..ir.placement import Placement
from ..ir.schedule import Schedule

__all__ = ["Form", "Measure", "Problem", "pose", "slack_of"]

Form = tuple[Kind, ...]
"""The kinds that a microbatch runs on every stage."""

_WHOLE, _SPLIT = FORMS[1:]
BACKWARDS = {"any": (_SPLIT, _WHOLE), "split": (_SPLIT,), "whole": (_WHOLE,)}
"""Which forms are tried, by what the caller calls it."""

_ENDS = (Kind.REDUCE_GRAD, Kind.OPT)
"""What may stand at the end of every rank, in this order."""

_SMALL, _LARGE = 1e-3, 1e3
"""The longest time of a problem whose times may be compared to nine places behind the point as they are."""
_LEAST = -90
"""The power of ten of the smallest unit: costs of kinds that play no part must not become infinite in it."""


def slack_of(limit: float) -> float:
    """What sums of sizes may differ by rounding, beside a limit of that size."""
    return 1e-9 * max(1.0, limit) if limit < float("inf") else 0.0


class Measure(str, Enum):
    """What is to be short: the whole step, or the longest time from a rank's first operation to its last."""

    MAKESPAN = "makespan"
    SPAN = "span"


@dataclass(frozen=True, eq=False)
class Problem:
    """Which operations are to be ordered, and under what.

    ``template`` gives sizes, placement, stage graph, ties and what ends every rank; its order plays no
    part. ``limits[r]`` is what rank ``r`` may hold, in the unit of ``costs.memory``. ``forms`` are the forms to
    be tried.
    """

    template: Schedule
    costs: Costs
    limits: tuple[float, ...]
    measure: Measure
    transport: str
    forms: tuple[Form, ...]

    @cached_property
    def cost_table(self) -> np.ndarray:
        """Durations by kind and stage, with the overhead of every operation; float64."""
        return np.asarray(self.costs.table(self.template) + self.costs.overhead)

    @cached_property
    def transfer(self) -> list[float]:
        """What passes until the output of a stage has arrived on another rank, by stage."""
        times: list[float] = self.costs.transfer_times(self.template).tolist()
        return times

    @cached_property
    def sizes(self) -> dict[str, list[float]]:
        """What things take in memory, by stage."""
        return {name: size.tolist() for name, size in self.costs.memory.sizes(self.template.stages).items()}

    @cached_property
    def room(self) -> tuple[float, ...]:
        """What every rank has for activations and outputs: its limit less what it holds all the time."""
        standing = self.costs.memory.standing(self.template).tolist()
        return tuple(limit - held for limit, held in zip(self.limits, standing, strict=True))

    @cached_property
    def ends(self) -> tuple[Kind, ...]:
        """The kinds that end every rank, for each of its stages."""
        return tuple(kind for kind in _ENDS if np.any(self.template.kind == kind))

    @cached_property
    def tails(self) -> tuple[float, ...]:
        """How long what ends a rank takes."""
        rows = (self.cost_table[list(self.ends)][:, list(stages)] for stages in self.template.placement.owned)
        return tuple(float(row.sum()) for row in rows)

    @cached_property
    def unit(self) -> float:
        """A power of ten near the longest of all times, or 1 where that is neither very small nor very large."""
        kinds = sorted({*self.ends, *(kind for form in self.forms for kind in form)})
        longest = max(float(self.cost_table[kinds].max()), *self.transfer)
        return 1.0 if _SMALL <= longest <= _LARGE or not longest else 10.0 ** max(_LEAST, floor(log10(longest)))

    def in_unit(self, unit: float) -> Problem:
        """The same problem with all times in another unit."""
        costs = self.costs.scaled(self.template, 1 / unit).changed(
            latency=self.costs.latency / unit,
            overhead=self.costs.overhead / unit,
            bandwidth=self.costs.bandwidth * unit,
        )
        return self if unit == 1.0 else replace(self, costs=costs)

    def jobs(self, form: Form) -> Jobs:
        """The operations of one form of the backward."""
        template = self.template
        lengths = self.cost_table[list(form)].tolist()
        return Jobs(form, template.microbatches, template.placement, template.graph, lengths, self.transfer)

    def shortened(self, microbatches: int) -> Problem:
        """The same problem with another number of microbatches."""
        by_stage = self.template.placement.rank_of[:, 0]
        placement = Placement.by_stage(by_stage, self.template.ranks, microbatches)
        return replace(self, template=replace(self.template, microbatches=microbatches, placement=placement))


def pose(
    template: Schedule,
    costs: Costs,
    memory_limit: float | Sequence[float] | None,
    measure: str,
    transport: str,
    backward: str,
) -> Problem:
    """The problem of a template under costs and limits.

    Raises PipeError (P603) for a template that cannot be searched for, ValueError for other arguments that
    do not fit.
    """
    _require_searchable(template)
    if backward not in BACKWARDS:
        raise ValueError(f"there is no backward `{backward}`; there are {', '.join(BACKWARDS)}")
    if measure not in tuple(Measure):
        raise ValueError(f"there is no measure `{measure}`; there are {', '.join(Measure)}")
    limits = _limits(template, memory_limit)
    chosen, forms = _stated(template, costs, BACKWARDS[backward])
    return Problem(template, chosen, limits, Measure(measure), transport, forms)


def _stated(template: Schedule, costs: Costs, forms: tuple[Form, ...]) -> tuple[Costs, tuple[Form, ...]]:
    """Costs and forms that go together, where only one form of the backward has costs that somebody stated.

    With costs of I or W only, B takes what both take. With a cost of B only, nothing is known of its
    halves: of several forms, whole backwards are tried.
    """
    said = ~np.isnan(template.declared_costs).all(axis=1)
    said[[kinds[0] for kinds in costs.kinds if len(kinds) == 1]] = True
    if said[Kind.B] == (said[Kind.I] or said[Kind.W]):
        return costs, forms
    if said[Kind.B]:
        return costs, (_WHOLE,) if _WHOLE in forms else forms
    table = costs.table(template)
    return costs.changed(B=(table[Kind.I] + table[Kind.W]).tolist()), forms


def _limits(template: Schedule, limit: float | Sequence[float] | None) -> tuple[float, ...]:
    if limit is None:
        limit = float("inf")
    limits = (float(limit),) * template.ranks if isinstance(limit, int | float) else tuple(map(float, limit))
    if len(limits) != template.ranks:
        raise ValueError(f"{len(limits)} memory limits for {template.ranks} ranks")
    if np.isnan(limits).any():
        raise ValueError("a memory limit must be a number, not nan")
    return limits


def _require_searchable(template: Schedule) -> None:
    known = (*_SPLIT, *_WHOLE, *_ENDS)
    others = sorted({Kind(int(kind)).name for kind in template.kind if kind not in known})
    message, help_ = None, "it has to say sizes, placement and stage graph; its order plays no part"
    if others:
        message = f"the search orders F, B, I and W; the schedule has {', '.join(others)}"
    elif any(len(copies) > 1 for copies in template.placement.copies):
        message = "the search orders stages that live on one rank each; the schedule has copies on several"
    elif not set(template.kind.tolist()) & {Kind.B, Kind.W}:
        message, help_ = "the schedule has no backward", "its forwards in the order of their microbatches are the best"
    if message:
        raise PipeError(Diagnostic("P603", message, None, help_))
