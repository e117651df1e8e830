"""Expressions: integers, evaluated in all lanes of a frame at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from ..diagnostics import Diagnostic, Span
from ..syntax import tree as t
from ..syntax.builder import LARGEST_INTEGER
from .frame import Contexts, Frame, Value, lane

__all__ = ["BUILTINS", "EvaluationError", "Evaluator", "Poisoned"]

MAX_STEPS = 1_000_000
"""Expressions and statements evaluated for one file; what calls itself in a fan would never end."""

MAX_CALLS = 64
"""Functions and sequences may call one another this deep."""

BUILTINS = ("abs", "max", "min", "stage")
"""Functions every file knows."""


class EvaluationError(Exception):
    """An expression that has no value; ``finding`` says why."""

    def __init__(self, finding: Diagnostic) -> None:
        self.finding = finding
        super().__init__(finding.message)


class Poisoned(Exception):
    """A name whose own definition failed: reported there, silent here."""


class Evaluator:
    """Evaluates the expressions of one file.

    ``owned[r]`` are the stages of rank ``r``, for ``stage(c)``; None until they are known.
    """

    def __init__(self, root: Frame, functions: Mapping[str, t.Function], contexts: Contexts) -> None:
        self.root = root
        self.contexts = contexts
        self.owned: tuple[tuple[int, ...], ...] | None = None
        self._functions = functions
        self._steps = 0
        self._max_steps = MAX_STEPS
        self._depth = 0

    def tick(self, span: Span) -> None:
        """Counts a step; raises :class:`EvaluationError` when the file takes too many."""
        self._steps += 1
        if self._steps > self._max_steps + 1:
            raise Poisoned  # said once
        if self._steps > self._max_steps:
            message = f"the file takes more than {self._max_steps:,} steps to expand"
            raise EvaluationError(Diagnostic("P208", message, span))

    def allow(self, steps: int) -> None:
        """Lets the file take further steps: for rules, which are evaluated as often as there are operations."""
        self._max_steps += steps

    @contextmanager
    def nested(self, span: Span) -> Iterator[None]:
        """One call inside another; raises :class:`EvaluationError` where calls go too deep."""
        self._depth += 1
        try:
            if self._depth > MAX_CALLS:
                raise EvaluationError(Diagnostic("P102", f"calls nested more than {MAX_CALLS} deep", span))
            yield
        finally:
            self._depth -= 1

    def fail(self, frame: Frame, where: int, code: str, message: str, span: Span, help: str | None = None) -> None:
        """Raises the finding for one lane, with the values of the variables there."""
        bindings = self.contexts.bindings(int(frame.context[where])) if frame.parent else {}
        values = ", ".join(f"{name} = {value}" for name, value in bindings.items())
        raise EvaluationError(Diagnostic(code, message + (f" for {values}" if values else ""), span, help))

    def fail_where(self, frame: Frame, bad: np.ndarray | bool, code: str, message: str, span: Span) -> None:
        """Raises the finding for the first lane that is marked bad, if any is."""
        if np.any(bad):
            self.fail(frame, int(np.argmax(bad)) if isinstance(bad, np.ndarray) else 0, code, message, span)

    def evaluate(self, node: t.Expression, frame: Frame) -> Value:
        """The value of an expression in every lane. Raises EvaluationError or Poisoned."""
        self.tick(node.span)
        match node:
            case t.Number():
                return node.value
            case t.Name():
                return self._name(node, frame)
            case t.Unary():
                value = self.evaluate(node.operand, frame)
                return _as_number(value == 0) if node.operator == "not" else -value if node.operator == "-" else value
            case t.Arithmetic():
                return self._arithmetic(node, frame)
            case t.Compare():
                return self._compare(node, frame)
            case t.Logic():
                return self._logic(node, frame)
            case t.Conditional():
                return self._conditional(node, frame)
            case t.Call():
                return self._call(node, frame)
        raise AssertionError(node)

    def _name(self, node: t.Name, frame: Frame) -> Value:
        if not frame.knows(node.text):
            message = f"`{node.text}` is used before it is defined"
            raise EvaluationError(Diagnostic("P201", message, node.span, "move its definition up"))
        value = frame.find(node.text)
        if value is None:
            raise Poisoned
        return value

    def _arithmetic(self, node: t.Arithmetic, frame: Frame) -> Value:
        value = self.evaluate(node.operands[0], frame)
        for operator, operand in zip(node.operators, node.operands[1:], strict=True):
            right = self.evaluate(operand, frame)
            value = self._apply(operator, value, right, node, frame)
        return value

    def _apply(self, operator: t.Word, left: Value, right: Value, node: t.Expression, frame: Frame) -> Value:
        if operator.text in ("//", "%"):
            self.fail_where(frame, right == 0, "P203", "division by zero", node.span)
            return left // right if operator.text == "//" else left % right
        if operator.text == "*":
            exact = _largest(left) * _largest(right) <= LARGEST_INTEGER
            too_large = False if exact else np.abs(np.multiply(left, right, dtype=np.float64)) > LARGEST_INTEGER
            self._bounded(too_large, node, frame)
            return left * right
        value = left + right if operator.text == "+" else left - right
        self._bounded(_largest(value) > LARGEST_INTEGER and np.abs(value) > LARGEST_INTEGER, node, frame)
        return value

    def _bounded(self, too_large: np.ndarray | bool, node: t.Expression, frame: Frame) -> None:
        message = f"the value leaves the range of integers, ±{LARGEST_INTEGER:,}"
        self.fail_where(frame, too_large, "P204", message, node.span)

    def _compare(self, node: t.Compare, frame: Frame) -> Value:
        """A chain, link by link: what follows a link that does not hold is not evaluated there."""
        left = self.evaluate(node.operands[0], frame)
        right = self.evaluate(node.operands[1], frame)
        compare = _COMPARISONS[node.operators[0].text]
        result = _as_number(compare(left, right))
        if len(node.operands) == 2:
            return result
        rest = replace(node, operands=node.operands[1:], operators=node.operators[1:])
        return self._undecided(result != 0, rest, result, frame)

    def _logic(self, node: t.Logic, frame: Frame) -> Value:
        result = self._truth(node.operands[0], frame)
        decided = 0 if node.operator == "and" else 1
        for operand in node.operands[1:]:
            result = self._undecided(result != decided, operand, result, frame)
        return result

    def _truth(self, node: t.Expression, frame: Frame) -> Value:
        return _as_number(self.evaluate(node, frame) != 0)

    def _undecided(self, open_: np.ndarray | bool, node: t.Expression, value: Value, frame: Frame) -> Value:
        """The truth of ``node`` in the lanes that are open, ``value`` in the others."""
        if not isinstance(open_, np.ndarray):
            return self._truth(node, frame) if open_ else value
        index = np.flatnonzero(open_)
        result = np.array(value)
        if len(index):
            result[index] = self._truth(node, frame.narrowed(index))
        return result

    def _conditional(self, node: t.Conditional, frame: Frame) -> Value:
        condition = self.evaluate(node.condition, frame)
        if isinstance(condition, int):
            return self.evaluate(node.then if condition else node.otherwise, frame)
        result = np.zeros(frame.count, dtype=np.int64)
        for branch, chosen in ((node.then, condition != 0), (node.otherwise, condition == 0)):
            index = np.flatnonzero(chosen)
            if len(index):
                result[index] = self.evaluate(branch, frame.narrowed(index))
        return result

    def _call(self, node: t.Call, frame: Frame) -> Value:
        arguments = [self.evaluate(argument, frame) for argument in node.arguments]
        name = node.function.text
        if function := self._functions.get(name):
            names = (parameter.text for parameter in function.parameters)
            called = frame.called(self.root, dict(zip(names, arguments, strict=True)))
            with self.nested(node.span):
                return self.evaluate(function.value, called)
        if name == "stage":
            return self._stage(node, arguments[0], frame)
        if name == "abs":
            return _extreme(np.maximum, [arguments[0], -arguments[0]])
        return _extreme(np.minimum if name == "min" else np.maximum, arguments)

    def _stage(self, node: t.Call, chunk: Value, frame: Frame) -> Value:
        if frame.rank is None or self.owned is None:
            raise EvaluationError(Diagnostic("P206", "`stage(c)` has a meaning only inside a rank body", node.span))
        ranks = np.broadcast_to(frame.rank, frame.count)
        chunks = np.broadcast_to(chunk, frame.count)
        counts = np.array([len(stages) for stages in self.owned])
        table = np.zeros((len(self.owned), max(1, counts.max())), dtype=np.int64)
        for rank, stages in enumerate(self.owned):
            table[rank, : len(stages)] = stages
        bad = (chunks < 0) | (chunks >= counts[ranks])
        if np.any(bad):
            where = int(np.argmax(bad))
            rank = int(ranks[where])
            owns = "no stage" if not counts[rank] else f"stage(0) to stage({counts[rank] - 1})"
            message = f"stage({lane(chunk, where)}) does not exist: rank {rank} owns {owns}"
            self.fail(frame, where, "P206", message, node.span)
        return np.asarray(table[ranks, chunks])


_COMPARISONS: dict[str, Callable[[Value, Value], np.ndarray | bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def _as_number(truth: np.ndarray | bool) -> Value:
    return truth.astype(np.int64) if isinstance(truth, np.ndarray) else int(truth)


def _largest(value: Value) -> int:
    return abs(value) if isinstance(value, int) else int(np.abs(value).max(initial=0))


def _extreme(choose: np.ufunc, values: list[Value]) -> Value:
    result = values[0]
    for value in values[1:]:
        chosen = choose(result, value)
        result = chosen if isinstance(chosen, np.ndarray) else int(chosen)
    return result
