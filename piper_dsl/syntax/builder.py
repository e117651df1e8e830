"""From lark's parse tree to the typed tree, bottom-up and without recursion."""

from __future__ import annotations

import re
from typing import Any

from lark import Token, Tree
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive, v_args

from ..diagnostics import Diagnostic, Source, Span
from ..ir.operations import Kind
from . import tree as t
from .literals import join_literals, read_literals

LARGEST_INTEGER = 10**15
"""Integers of the language stay within ± this, so that 64-bit arithmetic is exact."""

_COMMENT = re.compile(r"#[^\n]*")


@v_args(meta=True)
class Builder(Transformer_NonRecursive[Token, t.File]):
    """One method a rule of the grammar; each returns the node of :mod:`.tree` it stands for.

    Numbers too large for the language are collected in ``findings`` and read as 0.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(visit_tokens=False)
        self._source = source
        self.findings: list[Diagnostic] = []

    def _span(self, meta: Meta) -> Span:
        return Span(self._source, getattr(meta, "start_pos", 0), getattr(meta, "end_pos", 0))

    def _token_span(self, token: Token) -> Span:
        return Span(self._source, token.start_pos or 0, token.end_pos or 0)

    def _word(self, token: Token) -> t.Word:
        return t.Word(self._token_span(token), str(token))

    def start(self, meta: Meta, children: list[Any]) -> t.File:
        return t.File(self._source, tuple(children))

    # --- declarations ------------------------------------------------------------------------

    def schedule(self, meta: Meta, children: list[Any]) -> t.ScheduleName:
        return t.ScheduleName(self._span(meta), _unquote(children[0]))

    def param(self, meta: Meta, children: list[Any]) -> t.Param:
        name, default, description = children
        return t.Param(self._span(meta), self._word(name), default, description and _unquote(description))

    def let(self, meta: Meta, children: list[Any]) -> t.Let:
        return t.Let(self._span(meta), self._word(children[0]), children[1])

    def fn(self, meta: Meta, children: list[Any]) -> t.Function:
        return t.Function(self._span(meta), self._word(children[0]), children[1], children[2])

    def seq(self, meta: Meta, children: list[Any]) -> t.Sequence:
        return t.Sequence(self._span(meta), self._word(children[0]), children[1], children[2])

    def require(self, meta: Meta, children: list[Any]) -> t.Require:
        return t.Require(self._span(meta), children[0], children[1] and _unquote(children[1]))

    def size(self, meta: Meta, children: list[Any]) -> t.Size:
        return t.Size(self._span(meta), str(children[0]), children[1])

    def place(self, meta: Meta, children: list[Any]) -> t.Statement:
        if len(children) == 1:
            return t.PlaceNamed(self._span(meta), self._word(children[0]))
        stage, microbatch, rank = children
        return t.PlaceRule(self._span(meta), self._word(stage), microbatch and self._word(microbatch), rank)

    def edge(self, meta: Meta, children: list[Any]) -> t.Edge:
        return t.Edge(self._span(meta), *children)

    def tie(self, meta: Meta, children: list[Any]) -> t.Tie:
        return t.Tie(self._span(meta), tuple(children))

    def cost(self, meta: Meta, children: list[Any]) -> t.CostLine:
        kinds, *stage, value = children
        return t.CostLine(self._span(meta), kinds, stage[0] if stage else None, value)

    def cost_kinds(self, meta: Meta, children: list[Any]) -> tuple[Kind, ...]:
        return tuple(Kind[token] for token in children)

    def rank(self, meta: Meta, children: list[Any]) -> t.RankBody:
        *numbers, body = children
        start, stop, step = numbers + [None] * (3 - len(numbers))
        last = numbers[-1]
        if not body.span.end:  # an empty run: only its rank knows where it is
            end = self._span(meta).end
            body = t.Block(Span(self._source, end, end), ())
        selector = t.Range(Span(self._source, start.span.start, last.span.end), start, stop, step)
        return t.RankBody(self._span(meta), selector, body)

    def building_block(self, meta: Meta, children: list[Any]) -> t.BuildingBlock:
        return t.BuildingBlock(self._span(meta), *children)

    def block_items(self, meta: Meta, children: list[Any]) -> t.BlockItems:
        return t.BlockItems(self._span(meta), tuple(children))

    def block_item(self, meta: Meta, children: list[Any]) -> t.BlockItem:
        kind, stage, *slot = children
        return t.BlockItem(self._span(meta), Kind[kind], stage and self._word(stage), slot[0] if slot else None)

    def auto(self, meta: Meta, children: list[Any]) -> t.Auto:
        rank, items = children
        return t.Auto(self._span(meta), rank and self._word(rank), items)

    def auto_items(self, meta: Meta, children: list[Any]) -> t.AutoItems:
        return t.AutoItems(self._span(meta), tuple(children))

    def auto_item(self, meta: Meta, children: list[Any]) -> t.AutoItem:
        kind, microbatch, stage, priority, condition = children
        words = (microbatch and self._word(microbatch), stage and self._word(stage))
        return t.AutoItem(self._span(meta), Kind[kind], *words, priority, condition)

    def auto_priority(self, meta: Meta, children: list[Any]) -> t.Expression:
        expression: t.Expression = children[0]
        return expression

    auto_when = auto_priority

    def names(self, meta: Meta, children: list[Any]) -> tuple[t.Word, ...]:
        return tuple(self._word(token) for token in children if token is not None)

    # --- bodies ------------------------------------------------------------------------------

    def block(self, meta: Meta, children: list[Any]) -> t.Block:
        return t.Block(self._span(meta), tuple(self._statements(children)))

    run = block

    def _statements(self, children: list[Any]) -> list[t.Statement]:
        statements: list[t.Statement] = []
        for child in children:
            # A comment splits what is one run to a reader.
            if isinstance(child, t.Literals) and statements and isinstance(before := statements[-1], t.Literals):
                statements[-1] = join_literals(before, child)
            elif isinstance(child, tuple):
                statements.extend(child)
            else:
                statements.append(child)
        return statements

    def literals(self, meta: Meta, children: list[Any]) -> t.Literals:
        runs = [self._run(self._token_span(token)) for token in children]
        first = runs[0]
        for run in runs[1:]:
            run.joined[0] = True
            first = join_literals(first, run)
        return first

    def _run(self, span: Span) -> t.Literals:
        literals, oversized = read_literals(span)
        self.findings.extend(
            Diagnostic("P105", f"`{place.text}` has a number of more than 32 bits", place) for place in oversized
        )
        return literals

    def for_(self, meta: Meta, children: list[Any]) -> t.For:
        return t.For(self._span(meta), self._word(children[0]), children[1], children[2])

    def if_(self, meta: Meta, children: list[Any]) -> t.If:
        condition, then, otherwise = children
        return t.If(self._span(meta), condition, then, _as_block(otherwise))

    def let_if(self, meta: Meta, children: list[Any]) -> tuple[t.Let, t.If]:
        name, (value, statement, end) = children
        return t.Let(Span(self._source, self._span(meta).start, end), self._word(name), value), statement

    def value_if(self, meta: Meta, children: list[Any]) -> tuple[t.Expression, t.If, int]:
        """A value, the statement that follows it, and where the value ends."""
        if isinstance(children[-1], tuple):
            then, _, condition, (otherwise, statement, end) = children
            span = Span(self._source, self._span(meta).start, end)
            return t.Conditional(span, then, condition, otherwise), statement, end
        value, word, condition, block, otherwise = children
        start = self._token_span(word).start
        statement = t.If(Span(self._source, start, self._span(meta).end), condition, block, _as_block(otherwise))
        # Closing brackets belong to the value, and are no part of its node.
        behind = _COMMENT.sub(lambda match: " " * len(match[0]), self._source.text[value.span.end : start])
        return value, statement, value.span.end + len(behind.rstrip())

    def call_seq(self, meta: Meta, children: list[Any]) -> t.SequenceCall:
        return t.SequenceCall(self._span(meta), self._word(children[0]), children[1])

    def slot(self, meta: Meta, children: list[Any]) -> t.Slot:
        return t.Slot(self._span(meta), tuple(children))

    def operation(self, meta: Meta, children: list[Any]) -> t.OperationItem:
        kind, index, *stage = children
        return t.OperationItem(self._span(meta), Kind[kind], index, stage[0] if stage else None)

    def range_(self, meta: Meta, children: list[Any]) -> t.Range:
        start, stop, step = children + [None] * (3 - len(children))
        return t.Range(self._span(meta), start, stop, step)

    range_or_index = range_

    def idle(self, meta: Meta, children: list[Any]) -> t.Idle:
        return t.Idle(self._span(meta))

    # --- expressions -------------------------------------------------------------------------

    def conditional(self, meta: Meta, children: list[Any]) -> t.Conditional:
        return t.Conditional(self._span(meta), *children)

    def or_(self, meta: Meta, children: list[Any]) -> t.Logic:
        return t.Logic(self._span(meta), "or", tuple(children))

    def and_(self, meta: Meta, children: list[Any]) -> t.Logic:
        return t.Logic(self._span(meta), "and", tuple(children))

    def _chain(self, meta: Meta, children: list[Any], node: type[t.Arithmetic] | type[t.Compare]) -> t.Expression:
        operators = tuple(self._word(token) for token in children[1::2])
        return node(self._span(meta), tuple(children[0::2]), operators)

    def compare(self, meta: Meta, children: list[Any]) -> t.Expression:
        return self._chain(meta, children, t.Compare)

    def sum_(self, meta: Meta, children: list[Any]) -> t.Expression:
        return self._chain(meta, children, t.Arithmetic)

    product = sum_

    def not_(self, meta: Meta, children: list[Any]) -> t.Unary:
        return t.Unary(self._span(meta), "not", children[0])

    def sign(self, meta: Meta, children: list[Any]) -> t.Unary:
        return t.Unary(self._span(meta), str(children[0]), children[1])

    def number(self, meta: Meta, children: list[Any]) -> t.Number:
        digits = str(children[0]).lstrip("0") or "0"
        if len(digits) > 18 or int(digits) > LARGEST_INTEGER:
            message = f"the number is too large; integers stay within ±{LARGEST_INTEGER:,}"
            self.findings.append(Diagnostic("P105", message, self._span(meta)))
            return t.Number(self._span(meta), 0)
        return t.Number(self._span(meta), int(digits))

    def name(self, meta: Meta, children: list[Any]) -> t.Name:
        return t.Name(self._span(meta), str(children[0]))

    def call(self, meta: Meta, children: list[Any]) -> t.Call:
        return t.Call(self._span(meta), self._word(children[0]), children[1])

    def arguments(self, meta: Meta, children: list[Any]) -> tuple[t.Expression, ...]:
        return tuple(child for child in children if child is not None)


def _unquote(token: Token) -> str:
    return str(token)[1:-1]


def _as_block(otherwise: t.Block | t.If | None) -> t.Block | None:
    """An ``else if`` is an ``else`` whose block holds one ``if``."""
    return t.Block(otherwise.span, (otherwise,)) if isinstance(otherwise, t.If) else otherwise


def build(source: Source, parsed: Tree[Token]) -> tuple[t.File, tuple[Diagnostic, ...]]:
    """The typed tree of a lark tree of ``source``, and what is wrong with its numbers."""
    builder = Builder(source)
    file = builder.transform(parsed)
    return file, tuple(builder.findings)
