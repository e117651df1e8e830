"""An expression that is evaluated again and again, under values that come back."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from ..syntax import tree as t
from .evaluate import EvaluationError, Evaluator, Poisoned
from .frame import Frame
from .names import free_names

__all__ = ["Formula"]

_OUTSIDE = np.full(1, -1)


class Formula:
    """A function of some names, evaluated once for all combinations of values of those that it mentions.

    ``fixed`` gives the values, of one length, that are known before any others; a formula that mentions
    no further name is evaluated for all of them at once. Raises EvaluationError or Poisoned there.
    """

    def __init__(
        self, node: t.Expression, evaluator: Evaluator, fixed: Mapping[str, np.ndarray], names: tuple[str, ...]
    ) -> None:
        self._node = node
        self._evaluator = evaluator
        mentioned = set(free_names(node))
        self._names = [name for name in (*fixed, *names) if name in mentioned]
        self._places = [(*fixed, *names).index(name) for name in self._names]
        self._known: dict[tuple[float, ...], int] = {}
        if not mentioned & set(names):
            self._evaluate_all(fixed)

    def _evaluate_all(self, fixed: Mapping[str, np.ndarray]) -> None:
        count = len(next(iter(fixed.values())))
        columns = [fixed[name] for name in self._names]
        context = np.full(count, -1)
        for name, column in zip(self._names, columns, strict=True):
            context = self._evaluator.contexts.add(name, context, column)
        frame = Frame(count, self._evaluator.root, None, None, context, dict(fixed))
        values = np.broadcast_to(self._evaluator.evaluate(self._node, frame), count).tolist()
        keys = zip(*(column.tolist() for column in columns), strict=True) if columns else [()]
        self._known = dict(zip(keys, values, strict=False))

    def __call__(self, values: tuple[float, ...]) -> int:
        """The value under ``values``, one for every name. Raises EvaluationError or Poisoned."""
        key = tuple([values[place] for place in self._places])
        if key not in self._known:
            self._known[key] = self._evaluate(key)
        return self._known[key]

    def _evaluate(self, key: tuple[float, ...]) -> int:
        known = {name: int(value) for name, value in zip(self._names, key, strict=True)}
        try:
            return int(self._evaluator.evaluate(self._node, self._frame(known, _OUTSIDE)))
        except EvaluationError:
            context = _OUTSIDE
            for name, value in known.items():
                context = self._evaluator.contexts.add(name, context, np.array([value]))
            with suppress(Poisoned):  # steps that ran out are said once, above
                self._evaluator.evaluate(self._node, self._frame(known, context))
            raise

    def _frame(self, known: Mapping[str, int], context: np.ndarray) -> Frame:
        return Frame(1, self._evaluator.root, None, None, context, dict(known))
