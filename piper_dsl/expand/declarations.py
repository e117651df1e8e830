"""The top of a file: parameters, sizes, placement, stage graph, costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..diagnostics import Diagnostic, Related, Span
from ..ir.graph import StageGraph
from ..ir.operations import Kind
from ..ir.placement import Placement, loop_ranks, vee_ranks
from ..syntax import tree as t
from ..syntax.builder import LARGEST_INTEGER
from .evaluate import EvaluationError, Evaluator, Poisoned
from .frame import Contexts, Frame, lane
from .names import did_you_mean

__all__ = ["Declarations", "read_declarations", "root_frame"]

_SIZES = ("ranks", "microbatches", "stages")


@dataclass
class Declarations:
    """What the declarations of a file say; filled in by :func:`read_declarations`."""

    name: str
    parameters: dict[str, int]
    sizes: dict[str, int] = field(default_factory=dict)
    placement: Placement | None = None
    graph: StageGraph | None = None
    ties: tuple[tuple[int, ...], ...] = ()
    declared_costs: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    overlap_costs: dict[tuple[Kind, ...], np.ndarray] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)


def root_frame(file: t.File, overrides: Mapping[str, int], evaluator: Evaluator) -> list[Diagnostic]:
    """Evaluates params and lets, in order, into the evaluator's root frame."""
    findings: list[Diagnostic] = []
    for statement in file.statements:
        if isinstance(statement, t.Param) and statement.name.text in overrides:
            value = overrides[statement.name.text]
            evaluator.root.values[statement.name.text] = value if abs(value) <= LARGEST_INTEGER else None
            if abs(value) > LARGEST_INTEGER:
                message = (
                    f"`{statement.name.text}` is given as {value}, beyond the range of integers, ±{LARGEST_INTEGER:,}"
                )
                findings.append(Diagnostic("P204", message, statement.name.span))
        elif isinstance(statement, t.Param | t.Let):
            node = statement.default if isinstance(statement, t.Param) else statement.value
            evaluator.root.values[statement.name.text] = _scalar(node, evaluator, findings)
    return findings


def read_declarations(file: t.File, overrides: Mapping[str, int], evaluator: Evaluator, max_ops: int) -> Declarations:
    """Reads a file's declarations; what is wrong with them is in ``findings``, in no order.

    ``placement`` and ``graph`` are None where the sizes they stand on are unknown.
    """
    params = {s.name.text: s for s in file.statements if isinstance(s, t.Param)}
    reader = _Reader(file, evaluator, Declarations(_name(file), {}))
    result = reader.result
    result.findings += _unknown_overrides(overrides, params)
    result.findings += root_frame(file, overrides, evaluator)
    root = evaluator.root.values
    result.parameters = {name: value for name in params if isinstance(value := root[name], int)}
    reader.name()
    reader.sizes(max_ops)
    if all(size in result.sizes for size in _SIZES):
        reader.place()
        reader.connect()
        reader.costs()
    return result


def _name(file: t.File) -> str:
    names = [s.name for s in file.statements if isinstance(s, t.ScheduleName)]
    return names[0] if names else file.source.name.rsplit("/", 1)[-1].removesuffix(".pipe")


def _unknown_overrides(overrides: Mapping[str, int], params: Mapping[str, t.Param]) -> list[Diagnostic]:
    findings = []
    for name in overrides:
        if name not in params:
            known = ", ".join(params) or "none"
            help_ = did_you_mean(name, params) or f"its parameters: {known}"
            findings.append(Diagnostic("P212", f"the schedule has no parameter `{name}`", None, help_))
    return findings


def _scalar(node: t.Expression, evaluator: Evaluator, findings: list[Diagnostic]) -> int | None:
    """The value of an expression at the top of the file; None if it has none."""
    try:
        return lane(evaluator.evaluate(node, evaluator.root), 0)
    except EvaluationError as error:
        findings.append(error.finding)
    except Poisoned:
        pass
    return None


class _Reader:
    def __init__(self, file: t.File, evaluator: Evaluator, result: Declarations) -> None:
        self.result = result
        self._file = file
        self._evaluator = evaluator

    def _report(self, code: str, message: str, span: Span, help: str | None = None, *related: Related) -> None:
        self.result.findings.append(Diagnostic(code, message, span, help, related=related))

    def _scalar(self, node: t.Expression) -> int | None:
        return _scalar(node, self._evaluator, self.result.findings)

    def name(self) -> None:
        names = [s for s in self._file.statements if isinstance(s, t.ScheduleName)]
        for second in names[1:]:
            first = Related("first said here", names[0].span)
            self._report("P202", "the name of the schedule is said twice", second.span, None, first)

    # --- sizes -------------------------------------------------------------------------------

    def sizes(self, max_ops: int) -> None:
        stated = self._stated_sizes()
        for which in _SIZES:
            if which in stated:
                self._size(stated[which])
            elif which != "stages":
                span = Span(self._file.source, 0, 0)
                self._report("P211", f"the file does not say its `{which}`", span, f"add a line such as `{which} 4`")
        sizes = self.result.sizes
        if "stages" not in stated and "ranks" in sizes:
            sizes["stages"] = sizes["ranks"]
        if len(sizes) == 3 and max(sizes["stages"] * sizes["microbatches"], sizes["ranks"]) > max_ops:
            span = next(iter(stated.values())).span
            message = f"{sizes['stages']:,} stages of {sizes['microbatches']:,} microbatches are more than the limit"
            self._report("P208", f"{message} of {max_ops:,} operations", span, "raise it with `--max-ops`")
            sizes.clear()

    def _stated_sizes(self) -> dict[str, t.Size]:
        stated: dict[str, t.Size] = {}
        for statement in self._file.statements:
            if isinstance(statement, t.Size):
                if statement.which in stated:
                    first = Related("first said here", stated[statement.which].span)
                    self._report("P202", f"`{statement.which}` is said twice", statement.span, None, first)
                stated.setdefault(statement.which, statement)
        return stated

    def _size(self, statement: t.Size) -> None:
        value = self._scalar(statement.value)
        if value is not None and value < 1:
            self._report("P211", f"`{statement.which}` is {value}; it must be at least 1", statement.value.span)
        elif value is not None:
            self.result.sizes[statement.which] = value

    # --- placement ---------------------------------------------------------------------------

    def place(self) -> None:
        ranks, microbatches, stages = (self.result.sizes[which] for which in _SIZES)
        statements = [s for s in self._file.statements if isinstance(s, t.PlaceNamed | t.PlaceRule)]
        for second in statements[1:]:
            self._report("P202", "the placement is said twice", second.span, None, Related("first", statements[0].span))
        if not statements:
            self.result.placement = Placement.by_stage(loop_ranks(stages, ranks), ranks, microbatches)
        elif isinstance(statements[0], t.PlaceRule):
            self._place_by_rule(statements[0], ranks, microbatches, stages)
        else:
            self._place_by_name(statements[0], ranks, microbatches, stages)

    def _place_by_name(self, statement: t.PlaceNamed, ranks: int, microbatches: int, stages: int) -> None:
        known = {"loop": loop_ranks, "vee": vee_ranks}
        name = statement.name.text
        if name not in known:
            help_ = did_you_mean(name, known) or "`loop`, `vee`, or a rule: `place s on …`"
            self._report("P201", f"unknown placement `{name}`", statement.name.span, help_)
        elif name == "vee" and stages % ranks:
            message = f"`vee` folds whole rows of {ranks} ranks; {stages} stages are not a multiple"
            self._report("P213", message, statement.span, f"say `stages {2 * ranks}`")
        else:
            self.result.placement = Placement.by_stage(known[name](stages, ranks), ranks, microbatches)

    def _place_by_rule(self, statement: t.PlaceRule, ranks: int, microbatches: int, stages: int) -> None:
        grid = np.indices((stages, microbatches if statement.microbatch else 1))
        numbers = {statement.stage.text: grid[0].ravel()}
        if statement.microbatch:
            numbers[statement.microbatch.text] = grid[1].ravel()
        value = self._in_lanes(statement.rank, numbers, grid[0].size)
        if value is None:
            return
        rank_of = np.broadcast_to(value, grid[0].size)
        bad = (rank_of < 0) | (rank_of >= ranks)
        if np.any(bad):
            where = int(np.argmax(bad))
            values = ", ".join(f"{name} = {column[where]}" for name, column in numbers.items())
            message = f"rank {rank_of[where]} is outside 0..{ranks - 1} for {values}"
            self._report("P213", message, statement.rank.span)
            return
        table = np.broadcast_to(rank_of.reshape(grid[0].shape), (stages, microbatches))
        self.result.placement = Placement(table.astype(np.int32), ranks)

    def _in_lanes(self, node: t.Expression, numbers: dict[str, np.ndarray], count: int) -> np.ndarray | int | None:
        """The value of an expression for every one of ``count`` combinations of the numbers; None if it has none."""
        evaluator = self._evaluator
        context = np.full(count, -1)
        for name, column in numbers.items():
            context = evaluator.contexts.add(name, context, column)
        frame = Frame(count, evaluator.root, None, None, context, dict(numbers))
        try:
            return evaluator.evaluate(node, frame)
        except EvaluationError as error:
            self.result.findings.append(error.finding)
        except Poisoned:
            pass
        return None

    # --- stage graph -------------------------------------------------------------------------

    def connect(self) -> None:
        stages = self.result.sizes["stages"]
        edges: dict[tuple[int, int], t.Edge] = {}
        statements = [s for s in self._file.statements if isinstance(s, t.Edge)]
        for statement in statements:
            source, target = self._stage(statement.source), self._stage(statement.target)
            if source is not None and target is not None:
                if (source, target) in edges:
                    first = Related("first said here", edges[source, target].span)
                    self._report("P202", f"the edge {source} -> {target} is said twice", statement.span, None, first)
                edges.setdefault((source, target), statement)
        graph = StageGraph(stages, tuple(sorted(edges))) if statements else StageGraph.chain(stages)
        if cycle := graph.cycle:
            route = " -> ".join(map(str, (*cycle, cycle[0])))
            links = zip(cycle, (*cycle[1:], cycle[0]), strict=True)
            span = max((edges[link].span for link in links), key=lambda one: one.start)
            self._report("P214", f"the stage graph has a cycle: {route}", span, "remove one of its edges")
        self.result.graph = graph
        self.result.ties = tuple(filter(None, map(self._tie, self._of(t.Tie))))

    def _of(self, kind: type[t.Tie]) -> list[t.Tie]:
        return [s for s in self._file.statements if isinstance(s, kind)]

    def _tie(self, statement: t.Tie) -> tuple[int, ...] | None:
        stages = [self._stage(node) for node in statement.stages]
        known = sorted({stage for stage in stages if stage is not None})
        if len(known) < len(stages) and None not in stages:
            self._report("P202", "a tie names a stage twice", statement.span)
        return tuple(known) if len(known) > 1 else None

    def _stage(self, node: t.Expression) -> int | None:
        """A stage number in range; None, reported, where it is not."""
        value, stages = self._scalar(node), self.result.sizes["stages"]
        if value is not None and not 0 <= value < stages:
            self._report("P404", f"stage {value} is outside 0..{stages - 1}", node.span)
            return None
        return value

    # --- costs -------------------------------------------------------------------------------

    def costs(self) -> None:
        stages = self.result.sizes["stages"]
        self.result.declared_costs = np.full((len(Kind), stages), np.nan)
        for statement in self._file.statements:
            if isinstance(statement, t.CostLine):
                self._cost(statement, stages)

    def _defined_above(self, name: t.Name) -> bool:
        defined = (s.name for s in self._file.statements if isinstance(s, t.Param | t.Let))
        return any(word.text == name.text and word.span.start < name.span.start for word in defined)

    def _cost(self, statement: t.CostLine, stages: int) -> None:
        every = np.arange(stages)
        chosen: np.ndarray | list[int] = every
        numbers: dict[str, np.ndarray] = {}
        at = statement.stage
        if isinstance(at, t.Name) and not self._defined_above(at):
            numbers = {at.text: every}
        elif at is not None:
            stage = self._stage(at)
            if stage is None:
                return
            chosen = [stage]
        value = self._in_lanes(statement.value, numbers, stages)
        if value is None:
            return
        if np.any(np.asarray(value) < 0):
            self._report("P215", "a cost is at least 0", statement.value.span)
            return
        if len(statement.kinds) == 1:
            table = self.result.declared_costs[statement.kinds[0]]
        else:
            key = tuple(sorted(statement.kinds))
            table = self.result.overlap_costs.setdefault(key, np.full(stages, np.nan))
        table[chosen] = np.broadcast_to(value, stages)[chosen]


def evaluate_top(file: t.File, overrides: Mapping[str, int]) -> tuple[Evaluator, list[Diagnostic]]:
    """An evaluator whose root frame holds the params and lets of a file."""
    functions: dict[str, t.Function] = {}
    for statement in file.statements:
        if isinstance(statement, t.Function):
            functions.setdefault(statement.name.text, statement)
    evaluator = Evaluator(Frame(1), functions, Contexts())
    return evaluator, root_frame(file, overrides, evaluator)
