"""Lower bounds that hold for every order within the limits of memory, and what sets them.

Beside the work of a rank and the longest chain of a microbatch (:mod:`piper_dsl.simulate.bounds`):

- *Warm-up*. Until the first backward of a rank can start, it can run forwards only, and no more of them
  than its memory holds. What else it has to do comes after.
- *Occupancy*. An activation stays at least until its gradient has come back (and, as far as W frees it, W
  has run). All of them together need room for so long, and a rank has only so much room at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from ..ir.graph import StageGraph
from ..ir.operations import Kind
from ..simulate import Timeline
from .problem import Form, Measure, Problem

__all__ = ["Bound", "Resource", "bound_of_operations", "lower_bound", "of_form"]

_SLACK = 1e-9


class Resource(str, Enum):
    """What there is too little of."""

    STAGE = "stage"
    MEMORY = "memory"
    LINK = "link"


@dataclass(frozen=True)
class Bound:
    """No order is shorter than ``value``. ``resource``, on ``rank``, explains ``explained`` of it, which is all
    unless the exact solver proves more; ``why`` says so in words.

    ``without_memory`` and ``without_latency`` are the bounds where memory has no limits and where links
    take no time.
    """

    value: float
    resource: Resource
    rank: int
    why: str
    explained: float
    without_memory: float = 0.0
    without_latency: float = 0.0


def lower_bound(problem: Problem) -> Bound:
    """The best of the bounds; of several forms of the backward, that of the one with the least."""
    bound = _over_forms(problem)
    free = replace(problem, limits=(math.inf,) * problem.template.ranks)
    quick = replace(problem, costs=problem.costs.changed(latency=0.0, bandwidth=math.inf))
    without_memory, without_latency = _over_forms(free).value, _over_forms(quick).value
    if bound.resource is Resource.STAGE and without_latency < bound.value * (1 - _SLACK):
        bound = replace(bound, resource=Resource.LINK)
    return replace(bound, without_memory=without_memory, without_latency=without_latency)


def bound_of_operations(timeline: Timeline, measure: Measure) -> Bound:
    """A bound for all orders of a timeline's own operations: whole and split backwards, overlapped slots."""
    busiest = max(timeline.ranks, key=lambda rank: rank.busy)
    bounds = timeline.bounds
    value = busiest.busy if measure is Measure.SPAN else max(bounds.busiest_rank, bounds.chain)
    why = f"rank {busiest.rank} has {busiest.busy:g} of work, with backwards and slots as they are mixed here"
    return Bound(value, Resource.STAGE, busiest.rank, why, value, without_memory=value, without_latency=value)


def _over_forms(problem: Problem) -> Bound:
    return min((of_form(problem, form) for form in problem.forms), key=lambda bound: bound.value)


def of_form(problem: Problem, form: Form) -> Bound:
    """The best of the bounds for one form of the backward."""
    paths = _Paths(problem, form)
    used = (rank for rank, stages in enumerate(problem.template.placement.owned) if stages)
    found = [bound for rank in used for bound in _RankBounds(problem, paths, rank).all()]
    best = max(bound.value for bound in found)
    return next(bound for bound in found if bound.value >= best * (1 - _SLACK))


class _Paths:
    """Longest chains of one microbatch, by stage.

    ``before[s]`` ends where F starts, ``after[s]`` starts where the last operation of the stage ends,
    ``back[s]`` ends where the backward starts; ``trip[s]`` leads there from the start of F of the same stage.
    """

    def __init__(self, problem: Problem, form: Form) -> None:
        self._graph = graph = problem.template.graph
        table = problem.cost_table
        self._transfer = problem.transfer
        self._rank = problem.template.placement.rank_of[:, 0].tolist()
        self.spent = {kind: table[kind].tolist() for kind in form}
        self.form = form
        self.backward: list[float] = self.spent[form[1]]
        self.before = self._before()
        self.back = self._back([start + own for start, own in zip(self.before, self.spent[Kind.F], strict=True)])
        self.after = [0.0] * graph.stages if Kind.W in form else self._after()

    def _hop(self, source: int, target: int) -> float:
        """What passes on an edge of the stage graph, in either direction: both send what is as large."""
        return self._transfer[source] if self._rank[source] != self._rank[target] else 0.0

    def _before(self) -> list[float]:
        start = [0.0] * self._graph.stages
        for s in self._graph.topological:
            ends = (start[q] + self.spent[Kind.F][q] + self._hop(q, s) for q in self._graph.predecessors[s])
            start[s] = max(ends, default=0.0)
        return start

    def _back(self, forward_done: list[float]) -> list[float]:
        start = [0.0] * self._graph.stages
        for s in reversed(self._graph.topological):
            ends = (start[q] + self.backward[q] + self._hop(s, q) for q in self._graph.successors[s])
            start[s] = max([forward_done[s], *ends])
        return start

    def _after(self) -> list[float]:
        left = [0.0] * self._graph.stages
        for s in self._graph.topological:
            rest = (self._hop(q, s) + self.backward[q] + left[q] for q in self._graph.predecessors[s])
            left[s] = max(rest, default=0.0)
        return left

    @cached_property
    def trip(self) -> list[float]:
        return [self._trip(stage) for stage in range(self._graph.stages)]

    def _trip(self, first: int) -> float:
        """The longest chain from the start of F of a stage to the start of its backward."""
        done = [-math.inf] * self._graph.stages
        done[first] = self.spent[Kind.F][first]
        for s in self._graph.topological:
            ends = (done[q] + self._hop(q, s) + self.spent[Kind.F][s] for q in self._graph.predecessors[s])
            done[s] = max([done[s], *ends])
        return self._back(done)[first]


class _RankBounds:
    """The bounds that one rank sets. With the measure span, time counts from the rank's first operation."""

    def __init__(self, problem: Problem, paths: _Paths, rank: int) -> None:
        self._problem = problem
        self._paths = paths
        self._rank = rank
        self._stages = problem.template.placement.owned[rank]
        self._room = problem.room[rank]
        self._sizes = [problem.sizes["activation"][s] for s in self._stages]
        self._microbatches = problem.template.microbatches
        by_span = problem.measure is Measure.SPAN
        lead = min(paths.before[s] for s in self._stages)
        self._lead = 0.0 if by_span else lead
        self._tail = problem.tails[rank] if by_span else max(self._least(paths.after), problem.tails[rank])
        self._first = self._first_backward(lead)
        each = sum(paths.spent[kind][s] for kind in paths.form for s in self._stages)
        self._work = self._microbatches * each

    def _least(self, values: list[float]) -> float:
        return min(values[s] for s in self._stages)

    def _first_backward(self, lead: float) -> float:
        """The time from the first operation of the rank to its first backward, at least."""
        graph = self._problem.template.graph
        is_chain = graph == StageGraph.chain(graph.stages)
        return self._least(self._paths.back) - lead if is_chain else self._least(self._paths.trip)

    def all(self) -> Iterator[Bound]:
        yield self._stage()
        yield self._chain()
        yield self._warm_up()
        if 0.0 < self._room < math.inf:
            yield self._occupancy()

    def _bound(self, value: float, resource: Resource, why: str) -> Bound:
        return Bound(value, resource, self._rank, why, explained=value)

    def _stage(self) -> Bound:
        value = self._lead + self._work + self._tail
        lead = f", and {self._lead:g} lead to it" if self._lead else ""
        why = f"rank {self._rank} has {self._work:g} of work{lead}"
        return self._bound(value, Resource.STAGE, why)

    def _chain(self) -> Bound:
        last = [self._paths.spent[Kind.W][s] if Kind.W in self._paths.form else 0.0 for s in self._stages]
        trips = (self._paths.trip[s] + self._paths.backward[s] + w for s, w in zip(self._stages, last, strict=True))
        value = self._lead + max(trips) + self._tail
        why = f"one microbatch takes {value - self._tail:g} from stage to stage until rank {self._rank} is done with it"
        return self._bound(value, Resource.STAGE, why)

    def _warm_up(self) -> Bound:
        """Forwards before the first backward: as many as memory has room for."""
        forward = [self._paths.spent[Kind.F][s] for s in self._stages]
        wanted = min(self._first, self._microbatches * sum(forward))
        smallest = min(self._sizes)
        count = math.floor(self._room / smallest + _SLACK) if smallest and math.isfinite(self._room) else None
        fitting = wanted if count is None else min(wanted, count * max(forward))
        value = self._lead + self._first - fitting + self._work + self._tail
        back = f"the first gradient is back on rank {self._rank} after {self._first:g}"
        if fitting < wanted * (1 - _SLACK):
            why = f"{back}, and until then it has memory for {count} forwards"
            return self._bound(value, Resource.MEMORY, why)
        why = f"{back}, and it has {self._work:g} of work"
        return self._bound(value, Resource.STAGE, why)

    def _occupancy(self) -> Bound:
        """Room times time: what all activations need, over what the rank has."""
        paths, released = self._paths, self._problem.costs.memory.released_at_input
        needed = 0.0
        for s, size in zip(self._stages, self._sizes, strict=True):
            weight = paths.spent[Kind.W][s] if Kind.W in paths.form else 0.0
            needed += size * (paths.trip[s] + paths.backward[s] + (1 - released) * weight)
        value = self._lead + self._microbatches * needed / self._room + self._tail
        held = f"on rank {self._rank} a microbatch takes memory times time of {needed:g}"
        return self._bound(value, Resource.MEMORY, f"{held}, and there is room for {self._room:g} at a time")
