"""The library under the costs and limits of a problem: what to compare with, and where to start from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ..check import check
from ..check.memory import check_memory
from ..diagnostics import PipeError
from ..expand import expand
from ..ir.operations import COMPUTE, Kind
from ..ir.schedule import Schedule
from ..library import library_names, read_source
from ..simulate import Timeline, simulate
from ..syntax import parse
from ..syntax import tree as t
from .orders import Candidate, Orders
from .problem import Problem

__all__ = ["Known", "as_candidate", "known_schedules", "timeline_of"]


@dataclass(frozen=True, eq=False)
class Known:
    """A schedule with the problem's sizes, placement and stage graph; ``fits`` says whether within its limits."""

    name: str
    schedule: Schedule
    timeline: Timeline
    fits: bool


def known_schedules(problem: Problem) -> Iterator[Known]:
    """The schedules of the library that place stages as the problem does, and its own template."""
    template = problem.template
    parameters = {"p": template.ranks, "m": template.microbatches, "v": template.stages // template.ranks}
    new = not check(template, problem.transport)
    for name in library_names():
        file = parse(read_source(name))
        own = {statement.name.text for statement in file.statements if isinstance(statement, t.Param)}
        try:
            schedule = expand(file, {key: value for key, value in parameters.items() if key in own})
        except PipeError:
            continue  # not for these sizes
        if _same_problem(schedule, template) and not check(schedule, problem.transport):
            new = new and not _same_order(schedule, template)
            yield _known(name, schedule, problem)
    if new:
        yield _known(f"{template.name} (given)", template, problem)


def _same_order(one: Schedule, other: Schedule) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("kind", "stage", "microbatch", "joined", "offsets")
    )


def _same_problem(schedule: Schedule, template: Schedule) -> bool:
    sizes = (schedule.ranks, schedule.stages, schedule.microbatches)
    return (
        sizes == (template.ranks, template.stages, template.microbatches)
        and np.array_equal(schedule.placement.rank_of, template.placement.rank_of)
        and schedule.graph == template.graph
        and bool(np.isin(schedule.kind, (Kind.B, Kind.W)).any())
    )


def _known(name: str, schedule: Schedule, problem: Problem) -> Known:
    timeline = timeline_of(schedule, problem)
    return Known(name, timeline.schedule, timeline, not check_memory(schedule, problem.limits, problem.costs.memory))


def timeline_of(schedule: Schedule, problem: Problem) -> Timeline:
    """A simulation under the problem's costs and transport; the template's cost lines hold for all."""
    template = problem.template
    costed = replace(schedule, declared_costs=template.declared_costs, overlap_costs=template.overlap_costs)
    return simulate(costed, problem.costs, problem.transport)


def as_candidate(schedule: Schedule, orders: Orders, origin: str) -> Candidate | None:
    """A schedule as an order of jobs; None where it is of another form, or breaks the order of microbatches."""
    jobs = orders.jobs
    compute = np.isin(schedule.kind, COMPUTE)
    if set(schedule.kind[compute].tolist()) != set(jobs.kinds):
        return None
    rows: list[list[int]] = [[] for _ in range(schedule.ranks)]
    for index in np.flatnonzero(compute).tolist():
        key = (Kind(int(schedule.kind[index])), int(schedule.stage[index]), int(schedule.microbatch[index]))
        rows[int(schedule.rank[index])].append(jobs.number(*key))
    place = {job: at for row in rows for at, job in enumerate(row)}
    ordered = all(place[a] < place[b] for queue in jobs.queues().values() for a, b in pairwise(queue))
    return orders.candidate(rows, origin) if ordered and len(place) == len(jobs) else None
