"""Rank bodies to operations: every statement runs once, for all its lanes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..diagnostics import Diagnostic, Span
from ..ir.operations import PER_MICROBATCH
from ..syntax import tree as t
from .evaluate import EvaluationError, Evaluator, Poisoned
from .frame import Frame, Value, lane
from .rows import Rows

__all__ = ["BodyExpander", "TooManyOperations"]

_INT32 = 2**31 - 1


class TooManyOperations(Exception):
    """The expansion would exceed its limit; ``span`` is the statement at which it does."""

    def __init__(self, span: Span) -> None:
        self.span = span


class BodyExpander:
    """Expands blocks; collects the sites of operations and the findings of statements that fail."""

    def __init__(self, evaluator: Evaluator, sequences: Mapping[str, t.Sequence], max_ops: int) -> None:
        self.findings: list[Diagnostic] = []
        self.site_starts: list[np.ndarray] = []
        self.site_ends: list[np.ndarray] = []
        self._evaluator = evaluator
        self._sequences = sequences
        self._sites = 0
        self._known_sites: dict[int, int] = {}
        self._max_ops = max_ops
        self._expanded = 0

    def block(self, block: t.Block, frame: Frame) -> Rows:
        """The operations of a block in all lanes of a frame; failed statements are left out."""
        parts = []
        for statement in block.statements:
            try:
                self._evaluator.tick(statement.span)
                parts.append(self._statement(statement, frame))
            except EvaluationError as error:
                self.findings.append(error.finding)
                if error.finding.code == "P208":
                    raise TooManyOperations(statement.span) from error
            except Poisoned:
                continue
        return Rows.merged(parts)

    def _statement(self, statement: t.Statement, frame: Frame) -> Rows:
        match statement:
            case t.Let():
                return self._let(statement, frame)
            case t.For():
                return self._for(statement, frame)
            case t.If():
                return self._if(statement, frame)
            case t.SequenceCall():
                return self._call(statement, frame)
            case t.Slot():
                return self._slot(statement, frame)
            case t.Literals():
                return self._literals(statement, frame)
            case t.Idle():
                return Rows.merged([])
        raise AssertionError(statement)

    def _let(self, statement: t.Let, frame: Frame) -> Rows:
        name = statement.name.text
        try:
            value: Value | None = self._evaluator.evaluate(statement.value, frame)
        except (EvaluationError, Poisoned):
            frame.values[name] = None
            raise
        frame.values[name] = value
        return Rows.merged([])

    def _for(self, statement: t.For, frame: Frame) -> Rows:
        index, values = self._range(statement.range, frame)
        if not len(index):
            return Rows.merged([])
        name = statement.variable.text
        context = self._evaluator.contexts.add(name, frame.context[index], values)
        inner = frame.narrowed(index)
        inner.context = context
        inner.values[name] = values
        return self.block(statement.body, inner).in_lanes(index)

    def _if(self, statement: t.If, frame: Frame) -> Rows:
        condition = np.broadcast_to(self._evaluator.evaluate(statement.condition, frame), frame.count)
        parts = []
        for branch, chosen in ((statement.then, condition != 0), (statement.otherwise, condition == 0)):
            index = np.flatnonzero(chosen)
            if branch is not None and len(index):
                parts.append(self.block(branch, frame.narrowed(index)).in_lanes(index))
        return Rows.merged(parts)

    def _call(self, statement: t.SequenceCall, frame: Frame) -> Rows:
        sequence = self._sequences[statement.name.text]
        values: dict[str, Value | None] = {}
        context = frame.context
        for parameter, argument in zip(sequence.parameters, statement.arguments, strict=True):
            value = self._evaluator.evaluate(argument, frame)
            values[parameter.text] = value
            spread = np.array(np.broadcast_to(value, frame.count))
            context = self._evaluator.contexts.add(parameter.text, context, spread)
        inner = frame.called(self._evaluator.root, values)
        inner.context = context
        with self._evaluator.nested(statement.span):
            return self.block(sequence.body, inner)

    def _range(self, range_: t.Range, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
        """The lanes, repeated, and the numbers of a range in each, in order."""
        start = self._evaluator.evaluate(range_.start, frame)
        if range_.stop is None:
            self._spend(frame.count, range_.span)
            return np.arange(frame.count), np.array(np.broadcast_to(start, frame.count))
        stop = self._evaluator.evaluate(range_.stop, frame)
        step = self._evaluator.evaluate(range_.step, frame) if range_.step else 1
        span = range_.step.span if range_.step else range_.span
        self._evaluator.fail_where(frame, step == 0, "P203", "a range cannot have step 0", span)
        starts, stops, steps = (np.broadcast_to(value, frame.count) for value in (start, stop, step))
        counts = np.maximum(0, -((starts - stops) // steps))
        self._spend(sum(counts.tolist()), range_.span)
        index = np.repeat(np.arange(frame.count), counts)
        within = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
        return index, starts[index] + steps[index] * within

    def _spend(self, count: int, span: Span) -> None:
        self._expanded += count
        if self._expanded > 2 * self._max_ops:
            raise TooManyOperations(span)

    def _slot(self, slot: t.Slot, frame: Frame) -> Rows:
        if len(slot.items) == 1:
            return self._item(slot.items[0], frame)
        parts = []
        for number, item in enumerate(slot.items):
            rows = self._item(item, frame)
            if len(rows) != frame.count or np.any(np.diff(rows.lane) == 0):
                message = "an overlapped slot joins single operations, not ranges of them"
                raise EvaluationError(Diagnostic("P210", message, item.span))
            rows.joined[:] = number > 0
            parts.append(rows)
        return Rows.merged(parts)

    def _item(self, item: t.OperationItem, frame: Frame) -> Rows:
        if (item.kind in PER_MICROBATCH) != (item.index is not None):
            raise EvaluationError(_wrong_index(item))
        if item.index is not None:
            index, microbatches = self._range(item.index, frame)
        else:
            index, microbatches = np.arange(frame.count), np.full(frame.count, -1)
        if item.stage is not None:
            stages = np.broadcast_to(self._evaluator.evaluate(item.stage, frame), frame.count)[index]
        elif item.index is None:
            index, stages = self._own_stages(item, frame)
            microbatches = np.full(len(index), -1)
        else:
            stages = self._single_stage(frame, item.span)[index]
        large = (np.abs(microbatches) > _INT32) | (np.abs(stages) > _INT32)
        if np.any(large):
            where = int(index[np.argmax(large)])
            self._evaluator.fail(frame, where, "P204", "a stage or microbatch of more than 32 bits", item.span)
        site = self.site(item.span)
        return _rows(index, frame, np.full(len(index), int(item.kind)), stages, microbatches, np.full(len(index), site))

    def _own_stages(self, item: t.OperationItem, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
        """OPT and its like without a stage mean every stage of the rank, in increasing order."""
        owned = [self._owned(int(rank)) for rank in np.broadcast_to(_rank(frame), frame.count)]
        index = np.repeat(np.arange(frame.count), [len(stages) for stages in owned])
        return index, np.array([stage for stages in owned for stage in stages], dtype=np.int64)

    def _owned(self, rank: int) -> tuple[int, ...]:
        owned = self._evaluator.owned
        assert owned is not None
        return owned[rank]

    def _single_stage(self, frame: Frame, span: Span) -> np.ndarray:
        """The stage of every lane's rank, where it owns exactly one."""
        ranks = np.broadcast_to(_rank(frame), frame.count)
        single = np.array([stages[0] if len(stages) == 1 else -1 for stages in self._evaluator.owned or ()])
        stages: np.ndarray = single[ranks]
        if np.any(stages < 0):
            where = int(np.argmax(stages < 0))
            raise EvaluationError(self._which_stage(lane(ranks, where), span))
        return stages

    def _which_stage(self, rank: int, span: Span) -> Diagnostic:
        owned = self._owned(rank)
        if not owned:
            return Diagnostic("P209", f"rank {rank} owns no stage", span, "see the placement, or name one with `@`")
        names = ", ".join(str(stage) for stage in owned)
        example = f"`@stage(0)` or `@{owned[0]}`; literally, as in `{owned[0]}F0`"
        return Diagnostic("P209", f"which stage? rank {rank} owns {names}", span, f"name the stage: {example}")

    def _literals(self, run: t.Literals, frame: Frame) -> Rows:
        size = len(run.kinds)
        self._spend(size * frame.count, run.span)
        stages = np.tile(run.stages.astype(np.int64), frame.count)
        unsaid = np.flatnonzero(run.stages < 0)
        if len(unsaid):
            first = Span(run.span.source, int(run.starts[unsaid[0]]), int(run.ends[unsaid[0]]))
            single = self._single_stage(frame, first)
            stages = np.where(stages < 0, np.repeat(single, size), stages)
        sites = self.site(run.span, run) + np.arange(size)
        index = np.repeat(np.arange(frame.count), size)
        rows = _rows(
            index,
            frame,
            np.tile(run.kinds, frame.count),
            stages,
            np.tile(run.microbatches, frame.count),
            np.tile(sites, frame.count),
        )
        rows.joined[:] = np.tile(run.joined, frame.count)
        return rows

    def site(self, span: Span, run: t.Literals | None = None) -> int:
        """The number of a place; a run of literals takes one for each of its operations."""
        if span.start not in self._known_sites:
            self._known_sites[span.start] = self._sites
            starts = run.starts if run else np.array([span.start])
            self.site_starts.append(starts)
            self.site_ends.append(run.ends if run else np.array([span.end]))
            self._sites += len(starts)
        return self._known_sites[span.start]


def _rank(frame: Frame) -> Value:
    assert frame.rank is not None
    return frame.rank


def _rows(
    index: np.ndarray,
    frame: Frame,
    kinds: np.ndarray,
    stages: np.ndarray,
    microbatches: np.ndarray,
    sites: np.ndarray,
) -> Rows:
    joined = np.zeros(len(index), dtype=bool)
    return Rows(index, kinds, stages, microbatches, joined, sites, frame.context[index])


def _wrong_index(item: t.OperationItem) -> Diagnostic:
    name = item.kind.name
    if item.index is None:
        return Diagnostic("P210", f"{name} runs on a microbatch", item.span, f"write `{name}[i]` or `{name}[a:b]`")
    return Diagnostic("P210", f"{name} concerns a stage, not a microbatch", item.span, f"write `{name}` or `{name}@s`")
