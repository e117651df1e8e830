"""What jobs take of the memory of their rank, as :func:`piper_dsl.ir.memory.live_memory` counts it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, product
from operator import add

from ..expand.jobs import Jobs
from ..ir.operations import Kind
from .problem import Problem

__all__ = ["Loads"]


class Loads:
    """Memory by job.

    ``kept[j]`` is what job ``j`` changes of the activations that its rank keeps: F takes one, B and W free it,
    or I a part of it. ``change[j]`` is that, and with ``keeps_sent`` what it sends, which stays.
    """

    def __init__(self, problem: Problem, jobs: Jobs) -> None:
        self._problem = problem
        self._jobs = jobs
        cells = list(product(jobs.kinds, range(jobs.graph.stages)))
        kept = [self._kept(kind, stage) for kind, stage in cells]
        sent = [self._sent(kind, stage) for kind, stage in cells]
        keeps = problem.costs.memory.keeps_sent
        self.kept = self._by_job(kept)
        self.change = self._by_job([own + out for own, out in zip(kept, sent, strict=True)]) if keeps else self.kept
        passing = [0.0 if keeps else out for out in sent]
        # While a job runs, what it frees is still there.
        self._running = self._by_job([max(0.0, -own) + out for own, out in zip(kept, passing, strict=True)])

    def _by_job(self, by_cell: Sequence[float]) -> list[float]:
        return [amount for amount in by_cell for _ in range(self._jobs.microbatches)]

    def _kept(self, kind: Kind, stage: int) -> float:
        released = self._problem.costs.memory.released_at_input
        shares = {Kind.F: 1.0, Kind.B: -1.0, Kind.I: -released, Kind.W: released - 1.0}
        return shares[kind] * self._problem.sizes["activation"][stage]

    def _sent(self, kind: Kind, stage: int) -> float:
        """The outputs that an operation sends to other ranks: its own, or the gradients of its inputs."""
        graph, rank_of, output = self._jobs.graph, self._jobs.placement, self._problem.sizes["output"]
        if kind is Kind.W:
            return 0.0
        if kind is Kind.F:
            return output[stage] if any(rank_of(q) != rank_of(stage) for q in graph.successors[stage]) else 0.0
        return sum(output[q] for q in graph.predecessors[stage] if rank_of(q) != rank_of(stage))

    def peak(self, row: Sequence[int]) -> float:
        """The most that a rank holds at a time, beside what it holds all the time."""
        held = accumulate(map(self.change.__getitem__, row))
        return max(map(add, held, map(self._running.__getitem__, row)), default=0.0)

    def aside(self, rank: int) -> float:
        """What a rank needs at most beside the activations it keeps."""
        mine = [job for job, other in enumerate(self._jobs.rank) if other == rank]
        if self._problem.costs.memory.keeps_sent:
            return sum(self.change[job] - self.kept[job] for job in mine)
        return max((self._running[job] - max(0.0, -self.kept[job]) for job in mine), default=0.0)

    def in_turn(self, rank: int) -> list[int]:
        """A rank's jobs, one microbatch after the other: no order holds less.

        A microbatch on its way back is held on all the stages it came through, in every order.
        """
        jobs = self._jobs
        stages = [stage for stage in jobs.graph.topological if jobs.placement(stage) == rank]
        row = []
        for i in range(jobs.microbatches):
            row += [jobs.number(Kind.F, stage, i) for stage in stages]
            row += [jobs.number(kind, stage, i) for stage in reversed(stages) for kind in jobs.kinds[1:]]
        return row
