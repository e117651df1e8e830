"""What a search hands back: a schedule, how good it is, and the text of both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from ..diagnostics import Source
from ..interop.pipe_text import to_pipe
from ..ir.memory import live_memory
from ..ir.operations import Kind
from ..ir.origin import Origin
from ..ir.schedule import Schedule
from ..simulate import Timeline
from .bounds import Bound
from .known import Known
from .orders import Candidate
from .problem import Measure, Problem

__all__ = ["Found", "as_schedule", "measured", "peaks"]


@dataclass(frozen=True, eq=False)
class Found:
    """The best order found.

    ``value`` is what was measured, of ``timeline``; no order has less than ``bound.value``. ``origin``
    says which method found it, ``stopped`` why the search ended early: the time limit, an interrupt, or
    nothing. ``known`` are the library's schedules under the same costs and limits.
    """

    problem: Problem
    schedule: Schedule
    timeline: Timeline
    value: float
    bound: Bound
    origin: str
    known: tuple[Known, ...]
    seed: int
    seconds: float
    stopped: str

    @property
    def gap(self) -> float:
        """How much of the value may be too much: 0 where it is proven to be the least."""
        return max(0.0, 1.0 - self.bound.value / self.value) if self.value > 0 else 0.0

    @property
    def proven(self) -> bool:
        return self.value <= self.bound.value * (1 + 1e-9)

    def to_pipe(self) -> str:
        """The schedule as a `.pipe` file, with the conditions it was found under as comments."""
        return "".join(f"# {line}\n" for line in _conditions(self)) + "\n" + to_pipe(self.schedule)


def measured(timeline: Timeline, measure: Measure) -> float:
    """What is to be short, of a timeline."""
    if measure is Measure.MAKESPAN:
        return timeline.makespan
    return max(rank.end - rank.start for rank in timeline.ranks)


def peaks(schedule: Schedule, problem: Problem) -> list[float]:
    """The most that every rank holds, counted as its limit is."""
    live = live_memory(schedule, problem.costs.memory)
    return [float(row.max(initial=0.0)) for row in np.split(live, schedule.offsets[1:-1])]


def as_schedule(problem: Problem, candidate: Candidate) -> Schedule:
    """The schedule of an order: the rows of the ranks, each followed by what ends it."""
    template, jobs = problem.template, problem.jobs(candidate.form)
    operations = [
        (int(kind), stage, microbatch)
        for rank, row in enumerate(candidate.rows)
        for kind, stage, microbatch in (*map(jobs.key, row), *_ending(problem, rank))
    ]
    kind, stage, microbatch = np.array(operations, dtype=np.int32).reshape(-1, 3).T
    lengths = [len(row) + len(_ending(problem, rank)) for rank, row in enumerate(candidate.rows)]
    nowhere = np.zeros(len(kind), dtype=np.int32)
    none = np.zeros(0, dtype=np.int64)
    start, end = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    origin = Origin(Source("searched", ""), nowhere, nowhere - 1, start, end, none, none, none, ())
    return replace(
        template,
        name=f"{template.name}, searched",
        kind=kind.astype(np.int8),
        stage=stage,
        microbatch=microbatch,
        joined=np.zeros(len(kind), dtype=bool),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        parameters={},
        origin=origin,
    )


def _ending(problem: Problem, rank: int) -> list[tuple[Kind, int, int]]:
    return [(kind, stage, -1) for kind, stage in product(problem.ends, problem.template.placement.owned[rank])]


def _conditions(found: Found) -> list[str]:
    problem = found.problem
    table = problem.cost_table
    used = sorted({int(kind) for kind in found.schedule.kind if table[kind].any()})
    costs = ", ".join(f"{Kind(kind).name} = {_by_stage(table[kind].tolist())}" for kind in used)
    limits = _by_stage(list(problem.limits)).replace("inf", "none")
    unit = "activations" if problem.costs.memory.activation == 1.0 else "the unit of the profile"
    part = problem.costs.memory.released_at_input
    released = f", {part:g} of each freed at I" if part else ""
    exactly = "no order is shorter" if found.proven else f"no order is shorter than {found.bound.value:g}"
    return [
        f"Found by `piper-dsl search`, seed {found.seed}, by {found.origin}.",
        f"Costs by stage: {costs}; transfers {_by_stage(problem.transfer)}, transport {problem.transport}.",
        f"Memory limit by rank, in {unit}: {limits}{released}; peaks {_by_stage(peaks(found.schedule, problem))}.",
        f"{problem.measure.value.capitalize()} {found.value:g}; {exactly}: {found.bound.why}.",
    ]


def _by_stage(values: list[float]) -> str:
    """One number where all are the same, else all of them."""
    return f"{values[0]:g}" if len(set(values)) == 1 else " ".join(f"{value:g}" for value in values)
