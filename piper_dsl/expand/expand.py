"""Tree and parameters to Schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..diagnostics import Diagnostic, PipeError, Related, Span, in_source_order
from ..ir.origin import Origin
from ..ir.schedule import Schedule
from ..syntax import tree as t
from .auto_rows import AutoExpander
from .block_rows import BlockExpander
from .body import BodyExpander, TooManyOperations
from .declarations import Declarations, read_declarations
from .evaluate import EvaluationError, Evaluator, Poisoned
from .frame import Contexts, Frame
from .names import check_names
from .rows import Rows
from .rules import check_rules

__all__ = ["DEFAULT_MAX_OPS", "expand"]

DEFAULT_MAX_OPS = 10_000_000


def expand(file: t.File, parameters: Mapping[str, int] | None = None, max_ops: int = DEFAULT_MAX_OPS) -> Schedule:
    """The schedule that a file describes under the given parameters (its defaults where not given).

    Raises :class:`PipeError` with everything found wrong with names, declarations and bodies. That
    the operations are the right ones, in a possible order, is the work of :mod:`piper_dsl.check`.
    """
    findings = check_names(file)
    if findings:
        raise PipeError(*in_source_order(findings))
    functions = {s.name.text: s for s in file.statements if isinstance(s, t.Function)}
    evaluator = Evaluator(Frame(1), functions, Contexts())
    declarations = read_declarations(file, parameters or {}, evaluator, max_ops)
    findings = declarations.findings + check_rules(file, declarations.parameters, parameters or {}, evaluator)
    if findings or declarations.placement is None or declarations.graph is None:
        raise PipeError(*in_source_order(findings))
    evaluator.owned = declarations.placement.owned
    return _Bodies(file, declarations, evaluator, max_ops).expand()


class _Bodies:
    """Expands the rank bodies of a file whose declarations are sound."""

    def __init__(self, file: t.File, declarations: Declarations, evaluator: Evaluator, max_ops: int) -> None:
        self._file = file
        self._declarations = declarations
        self._evaluator = evaluator
        self._max_ops = max_ops
        sequences = {s.name.text: s for s in file.statements if isinstance(s, t.Sequence)}
        self._expander = BodyExpander(evaluator, sequences, max_ops)
        self._owner: dict[int, t.RankBody] = {}
        self._findings: list[Diagnostic] = []

    def expand(self) -> Schedule:
        parts: list[Rows] = []
        rules = [s for s in self._file.statements if isinstance(s, t.BuildingBlock | t.Auto)]
        if rules:
            return self._from_rule(rules)
        bodies = [s for s in self._file.statements if isinstance(s, t.RankBody)]
        numbered = [body for body in bodies if not self._binds_name(body)]
        try:
            parts += [self._body(body, self._numbers(body)) for body in numbered]
            parts += self._rest([body for body in bodies if self._binds_name(body)])
        except TooManyOperations as stop:
            message = f"the schedule grows beyond {self._max_ops:,} operations here"
            self._findings.append(Diagnostic("P208", message, stop.span, "raise the limit with `--max-ops`"))
        else:
            self._missing_bodies()
        findings = {(d.code, d.span): d for d in self._findings + self._expander.findings}
        if findings:
            raise PipeError(*in_source_order(findings.values()))
        return self._schedule(Rows.merged(parts))

    def _from_rule(self, rules: list[t.BuildingBlock | t.Auto]) -> Schedule:
        """A file with a `block` or an `auto` has one, and no rank bodies."""
        bodies = [s for s in self._file.statements if isinstance(s, t.RankBody)]
        word = "a block" if isinstance(rules[0], t.BuildingBlock) else "an auto"
        for other in [*rules[1:], *bodies]:
            first = Related(f"the {word.split()[1]}", rules[0].span)
            self._report("P202", f"{word} makes all bodies; this one is left over", other.span, None, first)
        said = self._declarations
        assert said.placement is not None
        assert said.graph is not None
        known = (said.placement, said.graph, self._evaluator, self._expander)
        expander: BlockExpander | AutoExpander
        if isinstance(rules[0], t.BuildingBlock):
            expander = BlockExpander(rules[0], *known)
            rows = expander.rows(said.sizes["microbatches"])
        else:
            expander = AutoExpander(rules[0], *known)
            rows = expander.rows(said.sizes["microbatches"], said.declared_costs)
        if self._findings or expander.findings:
            raise PipeError(*in_source_order([*self._findings, *expander.findings]))
        return self._schedule(rows)

    def _binds_name(self, body: t.RankBody) -> bool:
        selector = body.selector
        return (
            selector.stop is None
            and isinstance(selector.start, t.Name)
            and not self._evaluator.root.knows(selector.start.text)
        )

    def _report(self, code: str, message: str, span: Span, help: str | None = None, *related: Related) -> None:
        self._findings.append(Diagnostic(code, message, span, help, related=related))

    def _numbers(self, body: t.RankBody) -> list[int]:
        """The ranks a selector names; those out of range or taken are reported and left out."""
        selector, ranks = body.selector, self._declarations.sizes["ranks"]
        parts = [part for part in (selector.start, selector.stop, selector.step) if part]
        try:
            numbers = [int(self._evaluator.evaluate(part, self._evaluator.root)) for part in parts]
        except EvaluationError as error:
            self._findings.append(error.finding)
            return []
        except Poisoned:
            return []
        if len(numbers) == 3 and numbers[2] == 0:
            self._report("P203", "a range cannot have step 0", body.selector.span)
            return []
        chosen = range(*numbers) if len(numbers) > 1 else range(numbers[0], numbers[0] + 1)
        outside = [rank for rank in (*chosen[:1], *chosen[-1:]) if not 0 <= rank < ranks]
        if outside:
            message = f"rank {outside[0]} is outside 0..{ranks - 1}"
            self._report("P217", message, body.selector.span, "`ranks` says how many there are")
            return []
        return [rank for rank in chosen if self._claim(rank, body)]

    def _claim(self, rank: int, body: t.RankBody) -> bool:
        if rank in self._owner:
            first = Related("the first one", self._owner[rank].selector.span)
            self._report("P202", f"rank {rank} has two bodies", body.selector.span, None, first)
            return False
        self._owner[rank] = body
        return True

    def _rest(self, bodies: list[t.RankBody]) -> list[Rows]:
        """The body with a fresh name, for every rank that has none of its own."""
        for second in bodies[1:]:
            first = Related("the first one", bodies[0].selector.span)
            self._report("P202", "two bodies for all remaining ranks", second.selector.span, None, first)
        if not bodies:
            return []
        ranks = [rank for rank in range(self._declarations.sizes["ranks"]) if rank not in self._owner]
        self._owner.update(dict.fromkeys(ranks, bodies[0]))
        return [self._body(bodies[0], ranks)]

    def _body(self, body: t.RankBody, numbers: list[int]) -> Rows:
        if not numbers:
            return Rows.merged([])
        ranks = np.array(numbers)
        frame = Frame(len(ranks), self._evaluator.root, None, ranks, np.full(len(ranks), -1))
        if self._binds_name(body) and isinstance(body.selector.start, t.Name):
            name = body.selector.start.text
            frame.values[name] = ranks
            frame.context = self._evaluator.contexts.add(name, frame.context, ranks)
        rows = self._expander.block(body.body, frame)
        return replace(rows, lane=ranks[rows.lane])

    def _missing_bodies(self) -> None:
        missing = [rank for rank in range(self._declarations.sizes["ranks"]) if rank not in self._owner]
        if missing:
            end = len(self._file.source.text.rstrip())
            names = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
            message = f"no body for rank{'s' if len(missing) > 1 else ''} {names}"
            help_ = "`rank r { … }` stands for every rank without a body of its own"
            self._report("P218", message, Span(self._file.source, end, end), help_)

    def _schedule(self, rows: Rows) -> Schedule:
        if len(rows) > self._max_ops:
            message = f"the schedule has {len(rows):,} operations, more than the limit of {self._max_ops:,}"
            place = Span(self._file.source, 0, 0)
            raise PipeError(Diagnostic("P208", message, place, "raise the limit with `--max-ops`"))
        said = self._declarations
        assert said.placement is not None
        assert said.graph is not None
        parents, variables, values = self._evaluator.contexts.arrays()
        none = np.zeros(0, dtype=np.int64)
        origin = Origin(
            self._file.source,
            rows.site.astype(np.int32),
            rows.context.astype(np.int32),
            np.concatenate([none, *self._expander.site_starts]),
            np.concatenate([none, *self._expander.site_ends]),
            parents,
            variables,
            values,
            tuple(self._evaluator.contexts.names),
        )
        ranks = said.sizes["ranks"]
        return Schedule(
            name=said.name,
            ranks=ranks,
            stages=said.sizes["stages"],
            microbatches=said.sizes["microbatches"],
            placement=said.placement,
            graph=said.graph,
            ties=said.ties,
            kind=rows.kind.astype(np.int8),
            stage=rows.stage.astype(np.int32),
            microbatch=rows.microbatch.astype(np.int32),
            joined=rows.joined,
            offsets=np.searchsorted(rows.lane, np.arange(ranks + 1)),
            declared_costs=said.declared_costs,
            overlap_costs=said.overlap_costs,
            parameters=said.parameters,
            origin=origin,
        )
