"""The best order, and the proof that it is: constraint programming with OR-tools' CP-SAT.

Every operation is an interval, those of a rank do not overlap, and an activation takes a part of its
rank's memory from the start of F to the end of what frees it. Microbatches being alike, those of one kind
and stage run in order. Times are whole numbers: where the durations are not, in any scale up to
:data:`_FINEST`, they are rounded down, so that the bound still holds. So are sizes.

OR-tools is the extra ``search``; nothing here imports it before it is used.
"""

from __future__ import annotations

import importlib.util
import math
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from ..ir.graph import StageGraph
from ..ir.operations import Kind
from .orders import Candidate, Orders

__all__ = ["LARGEST", "available", "solve_exactly"]

LARGEST = 300
"""Jobs of a problem that is worth trying."""
_FINEST = 1000
_SLACK = 1e-6


def available() -> bool:
    """Whether OR-tools is installed."""
    return importlib.util.find_spec("ortools") is not None


def solve_exactly(
    orders: Orders, best: Candidate, lower: float, seconds: float, effort: float, seed: int
) -> tuple[Candidate, float]:
    """An order no worse than ``best``, and a bound that no order of its form beats: equal where it is proven.

    ``lower`` is a bound that is known; ``seconds`` of time are taken at most, and ``effort``, a time that
    does not depend on the machine.
    """
    from ortools.sat.python import cp_model

    model = _Model(orders, best, lower, cp_model)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.max_deterministic_time = effort
    solver.parameters.catch_sigint_signal = False
    status = _interruptible(solver, model.model)
    if status == cp_model.INFEASIBLE:
        raise AssertionError("the model has no order, yet one is known")
    bound = max(lower, (math.ceil(solver.best_objective_bound - _SLACK) - model.rounding) / model.scale)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return best, bound
    found = orders.candidate(model.rows(solver), "exact")
    better = found is not None and found.times.rating < best.times.rating
    return (found if found and better else best), bound


def _interruptible(solver: Any, model: Any) -> Any:
    """Solves in a thread, so that an interrupt reaches this one, and stops the solver before it is passed on."""
    with ThreadPoolExecutor(1) as pool:
        solving = pool.submit(solver.solve, model)
        try:
            return solving.result()
        except BaseException:
            solver.stop_search()
            raise


class _Model:
    """The problem as CP-SAT sees it, with ``best`` as a hint."""

    def __init__(self, orders: Orders, best: Candidate, lower: float, cp_model: Any) -> None:
        self._orders = orders
        self._jobs = orders.jobs
        times = [*orders.jobs.duration, *orders.problem.tails, *orders.jobs.transfer]
        self.scale = _scale(times)
        exact = _are_whole(times, self.scale)
        # A difference of two times that are rounded down may be too large by less than one.
        self.rounding = 0 if exact or not orders.by_span else 1
        self.model = cp_model.CpModel()
        self._duration = [self._whole(value) for value in orders.jobs.duration]
        latest = max(best.times.ends) + sum(orders.problem.tails) + max(best.times.start)
        self._horizon = math.ceil(latest * self.scale) + len(self._jobs)
        self._start = [self.model.new_int_var(0, self._horizon, f"s{job}") for job in range(len(self._jobs))]
        for job, start in enumerate(best.times.start):
            self.model.add_hint(self._start[job], self._whole(start))
        self._add_needs()
        self._add_ranks()
        if exact:
            self._add_begins()
        if any(map(math.isfinite, orders.problem.room)):
            self._add_memory()
        self._add_objective(lower)

    def rows(self, solver: Any) -> list[list[int]]:
        """The order of a solution: by time, and of what takes none, what is needed first."""
        rows: list[list[int]] = [[] for _ in range(self._jobs.placement.ranks)]
        depth = {job: place for place, job in enumerate(self._topological())}
        for job in sorted(range(len(self._jobs)), key=lambda job: (solver.value(self._start[job]), depth[job])):
            rows[self._jobs.rank[job]].append(job)
        return rows

    def _topological(self) -> list[int]:
        """The jobs by microbatch, kind, and place in the chain: an order in which all could run."""
        jobs, place = self._jobs, {s: k for k, s in enumerate(self._jobs.graph.topological)}
        sign = {Kind.F: 1, Kind.B: -1, Kind.I: -1, Kind.W: 1}

        def key(job: int) -> tuple[int, int, int]:
            kind, stage, microbatch = jobs.key(job)
            return microbatch, jobs.kinds.index(kind), sign[kind] * place[stage]

        return sorted(range(len(jobs)), key=key)

    def _whole(self, time: float) -> int:
        return math.floor(time * self.scale + _SLACK)

    def _end(self, job: int) -> Any:
        return self._start[job] + self._duration[job]

    def _add_needs(self) -> None:
        jobs = self._jobs
        for job, needs in enumerate(jobs.needs):
            for need in needs:
                self.model.add(self._start[job] >= self._end(need) + self._whole(jobs.delay(need, job)))
        for queue in jobs.queues().values():
            for earlier, later in pairwise(queue):
                self.model.add(self._start[later] >= self._end(earlier))

    def _add_ranks(self) -> None:
        intervals: list[list[Any]] = [[] for _ in range(self._jobs.placement.ranks)]
        for job, start in enumerate(self._start):
            interval = self.model.new_fixed_size_interval_var(start, self._duration[job], f"i{job}")
            intervals[self._jobs.rank[job]].append(interval)
        for row in intervals:
            self.model.add_no_overlap(row)

    def _add_begins(self) -> None:
        """Where the ranks' first stages follow each other, every rank starts with the first microbatch, at once."""
        jobs = self._jobs
        first = {min(stages) for stages in jobs.placement.owned if stages}
        if jobs.graph != StageGraph.chain(jobs.graph.stages) or first != set(range(len(first))):
            return
        now = 0
        for stage in range(len(first)):
            job = jobs.number(Kind.F, stage, 0)
            self.model.add(self._start[job] == now)
            now = now + self._duration[job] + self._whole(jobs.transfer[stage])

    def _add_memory(self) -> None:
        """What is held from the start of F on, in parts: one to the end of I, one to the end of B or W.

        Outputs on their way are left out, so that the bound holds; what is found is looked at with them.
        """
        jobs, problem = self._jobs, self._orders.problem
        released = problem.costs.memory.released_at_input if Kind.W in jobs.kinds else 0.0
        parts = [(jobs.ends, 1.0 - released), (jobs.backward, released)]
        sizes = [[size * part for size in problem.sizes["activation"]] for _, part in parts]
        unit = _scale([*sizes[0], *sizes[1], *filter(math.isfinite, problem.room)])
        held: list[list[tuple[Any, int]]] = [[] for _ in range(jobs.placement.ranks)]
        for (kind, _), amounts in zip(parts, sizes, strict=True):
            for stage, amount in enumerate(amounts):
                demand = math.floor(amount * unit + _SLACK)
                if kind is not None and demand:
                    held[jobs.placement(stage)] += (
                        (self._held(kind, stage, i), demand) for i in range(jobs.microbatches)
                    )
        for rank, room in enumerate(problem.room):
            if math.isfinite(room) and held[rank]:
                intervals, demands = zip(*held[rank], strict=True)
                self.model.add_cumulative(intervals, demands, math.floor(room * unit + _SLACK))

    def _held(self, kind: Kind, stage: int, microbatch: int) -> Any:
        """The interval from the start of F to the end of another kind."""
        first = self._start[self._jobs.number(Kind.F, stage, microbatch)]
        last = self._end(self._jobs.number(kind, stage, microbatch))
        return self.model.new_interval_var(first, self.model.new_int_var(0, self._horizon, ""), last, "")

    def _add_objective(self, lower: float) -> None:
        jobs = self._jobs
        longest = self.model.new_int_var(self._whole(lower), 2 * self._horizon, "longest")
        for (rank, kind, _), queue in jobs.queues().items():
            if kind is jobs.ends:
                end = self._end(queue[-1]) + self._whole(self._orders.problem.tails[rank])
                begin = self._begin(rank) if self._orders.by_span else 0
                self.model.add(longest >= end - begin)
        self.model.minimize(longest)

    def _begin(self, rank: int) -> Any:
        """When a rank starts: with the first forward of one of its stages."""
        first = [queue[0] for (r, kind, _), queue in self._jobs.queues().items() if r == rank and kind is Kind.F]
        begin = self.model.new_int_var(0, self._horizon, "")
        self.model.add_min_equality(begin, [self._start[job] for job in first])
        return begin


def _scale(values: list[float]) -> float:
    """The least whole factor, up to a limit, that makes whole numbers of all values.

    Where none does, one that makes the average of those that are not 0 as large as the limit.
    """
    for scale in range(1, _FINEST):
        if _are_whole(values, scale):
            return scale
    some = [value for value in values if value > 0]
    return _FINEST * len(some) / sum(some)


def _are_whole(values: list[float], scale: float) -> bool:
    return all(abs(value * scale - round(value * scale)) < _SLACK for value in values)
