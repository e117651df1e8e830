"""From an `auto` statement to the operations of every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..diagnostics import Diagnostic, Related
from ..ir.costs import default_costs
from ..ir.graph import StageGraph
from ..ir.operations import COMPUTE, PER_MICROBATCH, Kind
from ..ir.placement import Placement
from ..syntax import tree as t
from .body import BodyExpander
from .evaluate import EvaluationError, Evaluator, Poisoned
from .formula import Formula
from .jobs import FORMS, Jobs
from .list_scheduler import ListRun, State, list_schedule
from .rows import Rows
from .rule_rows import arranged_rows

__all__ = ["AutoExpander"]

_STEPS_PER_JOB = 100
"""Steps of evaluation that an operation adds to what a file may take."""


@dataclass(frozen=True)
class _Line:
    """A line of a rule for one kind, its expressions ready to be evaluated; None where it has none."""

    number: int
    priority: Formula | None
    condition: Formula | None


class AutoExpander:
    """Expands the one `auto` of a file; what is wrong with it is in ``findings``."""

    def __init__(
        self, auto: t.Auto, placement: Placement, graph: StageGraph, evaluator: Evaluator, sites: BodyExpander
    ) -> None:
        self.findings: list[Diagnostic] = []
        self._auto = auto
        self._placement = placement
        self._graph = graph
        self._evaluator = evaluator
        self._sites = sites

    def rows(self, microbatches: int, declared_costs: np.ndarray) -> Rows:
        """The operations of every rank; none where there are findings."""
        form = self._form()
        if self.findings:
            return Rows.merged([])
        lengths = default_costs(declared_costs)[list(form)].astype(np.int64).tolist()
        jobs = Jobs(form, microbatches, self._placement, self._graph, lengths, [0] * self._graph.stages)
        self._evaluator.allow(_STEPS_PER_JOB * len(jobs))
        try:
            run = list_schedule(jobs, _Rule(self._auto, jobs, self._evaluator).choose)
        except EvaluationError as error:
            self.findings.append(error.finding)
            return Rows.merged([])
        except Poisoned:
            return Rows.merged([])
        if run.waiting:
            self.findings.append(_stopped(self._auto, jobs, run))
            return Rows.merged([])
        arranged = [[jobs.key(job) for job in row] for row in run.rows]
        spans = [(item.kind, item.span) for item in self._auto.items.lines]
        return arranged_rows(arranged, spans, self._placement, self._sites, self._evaluator.contexts)

    def _report(self, message: str, node: t.Node, help: str | None = None, *related: Related) -> None:
        self.findings.append(Diagnostic("P220", message, node.span, help, related=related))

    def _form(self) -> tuple[Kind, ...]:
        """The kinds that the rule orders. What every rank ends with has neither microbatch nor conditions."""
        ends: dict[Kind, t.AutoItem] = {}
        for item in self._auto.items.lines:
            compute = item.kind in COMPUTE
            plain = item.kind not in PER_MICROBATCH and item.priority is item.condition is None
            if compute != (item.microbatch is not None) or not (compute or plain):
                help_ = "write `F[i]@s`, then `priority …` and `when …` if wanted; at the end of every rank, `OPT`"
                self._report(f"{item.kind.name} cannot be written like this in a rule", item, help_)
            elif item.kind in ends:
                first = Related("first said here", ends[item.kind].span)
                self._report(f"{item.kind.name} has two lines", item, None, first)
            elif not compute:
                ends[item.kind] = item
        form = tuple(sorted({item.kind for item in self._auto.items.lines if item.kind in COMPUTE}))
        if form not in FORMS and not self.findings:
            self._report("a rule needs F, F and B, or F, I and W", self._auto)
        return form


class _Rule:
    """What a rank starts, of all that is ready."""

    def __init__(self, auto: t.Auto, jobs: Jobs, evaluator: Evaluator) -> None:
        self._jobs = jobs
        self._lines: dict[Kind, list[_Line]] = {kind: [] for kind in jobs.kinds}
        rank = jobs.placement.rank_of.ravel()
        stage, microbatch = (part.ravel() for part in np.indices(jobs.placement.rank_of.shape))
        for number, item in enumerate(auto.items.lines):
            if item.stage and item.microbatch:
                # Without a name, the rank is a value that nothing mentions.
                fixed = {
                    auto.rank.text if auto.rank else "": rank,
                    item.stage.text: stage,
                    item.microbatch.text: microbatch,
                }
                self._lines[item.kind].append(
                    _Line(
                        number,
                        Formula(item.priority, evaluator, fixed, State._fields) if item.priority else None,
                        Formula(item.condition, evaluator, fixed, State._fields) if item.condition else None,
                    )
                )

    def choose(self, rank: int, state: State, heads: Sequence[int]) -> int:
        """The least by priority, line, microbatch and place in ``heads`` (later stages first); -1 where none may."""
        best: tuple[int, int, int] | None = None
        chosen = -1
        for job in heads:
            kind, stage, microbatch = self._jobs.key(job)
            values = (rank, stage, microbatch, *state)
            for line in self._lines[kind]:
                if line.condition is None or line.condition(values):
                    found = (line.priority(values) if line.priority else 0, line.number, microbatch)
                    if best is None or found < best:
                        best, chosen = found, job
                    break
        return chosen


def _stopped(auto: t.Auto, jobs: Jobs, run: ListRun) -> Diagnostic:
    """The finding for a rule that lets nothing start any more, at the line of what comes first of all that is ready.

    That is of the lowest microbatch, which others wait for sooner than it waits for them.
    """
    first, *others = sorted(run.waiting, key=lambda one: min(jobs.key(job)[2] for job in one[2]))
    rank, state, ready = first
    kind = jobs.key(ready[0])[0]
    item = next(item for item in auto.items.lines if item.kind is kind)
    left = len(jobs) - sum(map(len, run.rows))
    message = f"the rule stops at time {state.now:g}: rank {rank} may not start {_names(jobs, ready)}"
    said = f"held = {state.held}, in_flight = {state.in_flight}, ready = {state.ready}"
    also = [f"rank {other} may not start {_names(jobs, heads)}" for other, _, heads in others]
    help_ = "; ".join([f"there {said}, and nothing runs; {left} operations are left", *also])
    return Diagnostic("P221", message, (item.condition or item).span, help_)


def _names(jobs: Jobs, ready: Sequence[int]) -> str:
    keys = (jobs.key(job) for job in ready)
    return " or ".join(f"{stage}{kind.name}{microbatch}" for kind, stage, microbatch in keys)
