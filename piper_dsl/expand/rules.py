"""`require`: rules about the parameters, and the nearest values that satisfy them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..diagnostics import Diagnostic
from ..syntax import tree as t
from .evaluate import EvaluationError, Evaluator, Poisoned
from .frame import lane
from .names import free_names

__all__ = ["check_rules"]

_REACH = 64
"""How far from the given value of a parameter a satisfying one is looked for."""


def check_rules(
    file: t.File, parameters: Mapping[str, int], given: Mapping[str, int], evaluator: Evaluator
) -> list[Diagnostic]:
    """One finding for every violated ``require``, with the parameters it depends on.

    ``parameters`` are all values, ``given`` those from outside, which defaults may derive from.
    """
    rules = [s for s in file.statements if isinstance(s, t.Require)]
    findings = []
    for rule in rules:
        try:
            if lane(evaluator.evaluate(rule.condition, evaluator.root), 0):
                continue
        except EvaluationError as error:
            findings.append(error.finding)
            continue
        except Poisoned:
            continue
        involved = _parameters_of(rule.condition, file, parameters)
        values = ", ".join(f"{name} = {parameters[name]}" for name in involved)
        message = rule.message or f"the rule `{rule.condition.span.text}` does not hold"
        message += f" ({values})" if values else ""
        nearest = _nearest(file, rules, involved, parameters, given)
        findings.append(Diagnostic("P216", message, rule.span, nearest))
    return findings


def _parameters_of(node: t.Node, file: t.File, parameters: Mapping[str, int]) -> list[str]:
    """The parameters an expression depends on, also through lets and functions, in file order."""
    definitions: dict[str, t.Node] = {}
    for statement in file.statements:
        if isinstance(statement, t.Let | t.Function):
            definitions.setdefault(statement.name.text, statement.value)
    seen: set[str] = set()
    open_ = list(free_names(node))
    while open_:
        name = open_.pop()
        if name not in seen:
            seen.add(name)
            open_ += free_names(definitions[name]) if name in definitions else []
    return [name for name in parameters if name in seen]


def _nearest(
    file: t.File,
    rules: Iterable[t.Require],
    involved: Iterable[str],
    parameters: Mapping[str, int],
    given: Mapping[str, int],
) -> str | None:
    """For each parameter alone, the nearest values below and above under which every rule holds."""
    offers = []
    for name in involved:
        value = parameters[name]
        below = range(value - 1, max(0, value - _REACH - 1), -1)
        above = range(value + 1, value + _REACH + 1)
        found = [next((v for v in side if _all_hold(file, rules, {**given, name: v})), None) for side in (below, above)]
        values = " or ".join(str(v) for v in found if v is not None)
        if values:
            offers.append(f"{name} = {values}")
    return f"nearest that satisfy every rule: {'; or '.join(offers)}" if offers else None


def _all_hold(file: t.File, rules: Iterable[t.Require], parameters: Mapping[str, int]) -> bool:
    from .declarations import evaluate_top

    evaluator, findings = evaluate_top(file, parameters)
    try:
        return not findings and all(lane(evaluator.evaluate(r.condition, evaluator.root), 0) for r in rules)
    except (EvaluationError, Poisoned):
        return False
