"""From a `block` statement to the operations of every rank."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..diagnostics import Diagnostic, Related, Span
from ..ir.graph import StageGraph
from ..ir.operations import PER_MICROBATCH, Kind
from ..ir.placement import Placement
from ..syntax import tree as t
from .body import BodyExpander
from .building_block import BlockShape, arrange
from .evaluate import EvaluationError, Evaluator, Poisoned
from .frame import Frame
from .rows import Rows
from .rule_rows import arranged_rows

__all__ = ["BlockExpander"]

_FORMS = ({Kind.F, Kind.B}, {Kind.F, Kind.I, Kind.W})
_LENGTH = {Kind.F: 1, Kind.I: 1, Kind.W: 1, Kind.B: 2}


class BlockExpander:
    """Expands the one `block` of a file; what is wrong with it is in ``findings``."""

    def __init__(
        self, block: t.BuildingBlock, placement: Placement, graph: StageGraph, evaluator: Evaluator, sites: BodyExpander
    ) -> None:
        self.findings: list[Diagnostic] = []
        self._block = block
        self._placement = placement
        self._graph = graph
        self._evaluator = evaluator
        self._sites = sites

    def rows(self, microbatches: int) -> Rows:
        """The operations of every rank; none where there are findings."""
        items = self._items()
        period = self._value(self._block.period, None)
        slots = {kind: self._value(item.slot, item.stage) for kind, item in items.items() if item.slot is not None}
        if self.findings or period is None or any(value is None for value in slots.values()):
            return Rows.merged([])
        stages = self._graph.stages
        known = {kind: tuple(np.broadcast_to(v, stages).tolist()) for kind, v in slots.items() if v is not None}
        owners = tuple(self._placement(stage) for stage in range(stages))
        shape = BlockShape(known, int(period), microbatches, owners, self._placement.ranks, self._graph)
        self.findings += _misfits(self._block, items, shape)
        if any(len(copies) > 1 for copies in self._placement.copies):
            self._report("a block cannot place copies of a stage on several ranks", self._block.span)
        if self.findings:
            return Rows.merged([])
        spans = [(item.kind, item.span) for item in items.values()]
        return arranged_rows(arrange(shape), spans, self._placement, self._sites, self._evaluator.contexts)

    def _report(self, message: str, span: Span, help: str | None = None, *related: Related) -> None:
        self.findings.append(Diagnostic("P219", message, span, help, related=related))

    def _items(self) -> dict[Kind, t.BlockItem]:
        """The items by kind; what every rank ends with has no slot and no stage."""
        items: dict[Kind, t.BlockItem] = {}
        for item in self._block.items.lines:
            if item.kind in items:
                first = Related("first said here", items[item.kind].span)
                self._report(f"{item.kind.name} has two lines", item.span, None, first)
            items.setdefault(item.kind, item)
            compute = item.kind in _LENGTH
            fits = compute or item.kind not in PER_MICROBATCH
            if (
                not fits
                or compute != (item.stage is not None)
                or (item.slot is not None) != (compute and item.kind is not Kind.W)
            ):
                help_ = "write `F@s at …`, `B@s at …` or `I@s at …` and `W@s`; at the end of every rank, `OPT`"
                self._report(f"{item.kind.name} cannot be written like this in a block", item.span, help_)
        if {kind for kind in items if kind in _LENGTH} not in _FORMS:
            self._report("a block needs F and B, or F, I and W", self._block.span)
        return items

    def _value(self, node: t.Expression | None, stage: t.Word | None) -> np.ndarray | int | None:
        """The value of an expression, for every stage where a name stands for it; None, reported, if it has none."""
        if node is None:
            return None
        root, count = self._evaluator.root, self._graph.stages
        frame = Frame(1, root)
        if stage is not None:
            numbers = np.arange(count)
            context = self._evaluator.contexts.add(stage.text, np.full(count, -1), numbers)
            frame = Frame(count, root, None, None, context, {stage.text: numbers})
        try:
            return self._evaluator.evaluate(node, frame)
        except EvaluationError as error:
            self.findings.append(error.finding)
        except Poisoned:
            pass
        return None


def _misfits(block: t.BuildingBlock, items: dict[Kind, t.BlockItem], shape: BlockShape) -> Iterator[Diagnostic]:
    """What keeps a block from being repeated: a slot before what it needs, or two operations in one slot."""
    work = sum(_LENGTH[kind] for kind in items if kind in _LENGTH)
    chunks = max(shape.owners.count(rank) for rank in range(shape.ranks))
    if shape.period < work * chunks:
        message = f"a period of {shape.period} slots is too short for a rank with {chunks} stages of {work} slots each"
        yield Diagnostic("P219", message, block.period.span, f"it must be at least {work * chunks}")
        return
    for kind, slots in shape.slots.items():
        for stage, slot in enumerate(slots):
            for other, source in _needs(shape, kind, stage):
                end = shape.slots[other][source] + _LENGTH[other]
                if slot < end:
                    needed = f"{other.name} of stage {source}, which it needs, ends in slot {end}"
                    message = f"{kind.name} of stage {stage} stands in slot {slot}, but {needed}"
                    yield Diagnostic("P219", message, items[kind].span)
                    return
    yield from _collisions(items, shape)


def _needs(shape: BlockShape, kind: Kind, stage: int) -> Iterator[tuple[Kind, int]]:
    if kind is Kind.F:
        yield from ((Kind.F, source) for source in shape.graph.predecessors[stage])
    else:
        yield (Kind.F, stage)
        yield from ((kind, source) for source in shape.graph.successors[stage])


def _collisions(items: dict[Kind, t.BlockItem], shape: BlockShape) -> Iterator[Diagnostic]:
    taken: dict[tuple[int, int], tuple[Kind, int]] = {}
    for kind, slots in shape.slots.items():
        for stage, first in enumerate(slots):
            if first < 0:
                message = f"{kind.name} of stage {stage} stands in slot {first}; slots count from 0"
                yield Diagnostic("P219", message, items[kind].span)
                return
            for slot in range(first, first + _LENGTH[kind]):
                place = (shape.owners[stage], slot % shape.period)
                if place in taken:
                    other, source = taken[place]
                    met = f"{kind.name} of stage {stage} and {other.name} of stage {source}"
                    message = f"{met} meet on rank {place[0]}: both take slot {place[1]} of a period of {shape.period}"
                    yield Diagnostic("P219", message, items[kind].span)
                    return
                taken[place] = (kind, stage)
