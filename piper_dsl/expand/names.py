"""Names, before anything is evaluated: what is unknown, defined twice, called wrongly or recursive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import pairwise

from ..diagnostics import Diagnostic, Related
from ..syntax import tree as t
from .evaluate import BUILTINS
from .list_scheduler import State

__all__ = ["check_names", "did_you_mean", "free_names"]

_VARIADIC = ("max", "min")


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A help line with the closest known name, if one is close."""
    close = get_close_matches(name, sorted(set(known)), n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else None


def check_names(file: t.File) -> list[Diagnostic]:
    """Every finding about names in a file, in source order."""
    return _Names(file).run()


class _Names:
    def __init__(self, file: t.File) -> None:
        self._file = file
        self._findings: list[Diagnostic] = []
        self._functions = _first_by_name(s for s in file.statements if isinstance(s, t.Function))
        self._sequences = _first_by_name(s for s in file.statements if isinstance(s, t.Sequence))
        self._globals: dict[str, t.Word] = {}

    def run(self) -> list[Diagnostic]:
        for statement in self._file.statements:
            if isinstance(statement, t.Function | t.Sequence):
                self._define(statement.name, self._globals)
        everything = dict(self._globals)
        for statement in self._file.statements:
            if isinstance(statement, t.Param | t.Let):
                everything.setdefault(statement.name.text, statement.name)
        for statement in self._file.statements:
            self._top(statement, everything)
        self._recursion()
        return self._findings

    def _report(self, code: str, message: str, node: t.Node, help: str | None = None, *related: Related) -> None:
        self._findings.append(Diagnostic(code, message, node.span, help, related=related))

    def _define(self, word: t.Word, scope: dict[str, t.Word]) -> None:
        if word.text in BUILTINS:
            self._report("P202", f"`{word.text}` is a function of the language", word, "choose another name")
        elif word.text in scope:
            first = Related("first defined here", scope[word.text].span)
            self._report("P202", f"`{word.text}` is defined twice", word, "choose another name", first)
        else:
            scope[word.text] = word

    def _top(self, statement: t.Statement, everything: dict[str, t.Word]) -> None:
        """Declarations see what stands above them; bodies and functions see the whole file."""
        match statement:
            case t.Param(default=value) | t.Let(value=value):
                self._expression(value, self._globals)
                self._define(statement.name, self._globals)
            case t.Function():
                self._expression(statement.value, self._parameters(statement, everything))
            case t.Sequence():
                self._block(statement.body, self._parameters(statement, everything))
            case t.PlaceRule():
                scope = dict(self._globals)
                for word in (statement.stage, statement.microbatch):
                    if word:
                        scope[word.text] = word
                self._expression(statement.rank, scope)
            case t.CostLine(stage=t.Name() as stage) if stage.text not in self._globals:
                self._expression(statement.value, self._globals | {stage.text: t.Word(stage.span, stage.text)})
            case t.RankBody():
                self._rank(statement, everything)
            case t.BuildingBlock():
                self._expression(statement.period, everything)
                for item in statement.items.lines:
                    if item.stage and item.slot:
                        self._expression(item.slot, everything | {item.stage.text: item.stage})
            case t.Auto():
                self._auto(statement, everything)
            case _:
                for value in _expressions(statement):
                    self._expression(value, self._globals)

    def _parameters(self, owner: t.Function | t.Sequence, everything: dict[str, t.Word]) -> dict[str, t.Word]:
        own: dict[str, t.Word] = {}
        for parameter in owner.parameters:
            self._define(parameter, own)
        return everything | own

    def _rank(self, statement: t.RankBody, everything: dict[str, t.Word]) -> None:
        selector = statement.selector
        scope = dict(everything)
        if selector.stop is None and isinstance(selector.start, t.Name) and selector.start.text not in scope:
            scope[selector.start.text] = t.Word(selector.span, selector.start.text)
        else:
            self._range(selector, scope)
        self._block(statement.body, scope)

    def _auto(self, statement: t.Auto, everything: dict[str, t.Word]) -> None:
        """The names of a rule: its rank, a line's stage and microbatch, and the state of the rank."""
        for name in State._fields:
            if name in everything:
                message = f"`{name}` has a meaning of its own in the rule of this file"
                self._report("P202", message, everything[name], "choose another name")
        state = dict.fromkeys(State._fields, t.Word(statement.span, ""))
        for item in statement.items.lines:
            own: dict[str, t.Word] = {}
            for word in filter(None, (statement.rank, item.stage, item.microbatch)):
                self._define(word, own)
            for expression in filter(None, (item.priority, item.condition)):
                self._expression(expression, everything | state | own)

    def _block(self, block: t.Block, outer: dict[str, t.Word], *introduced: t.Word) -> None:
        own: dict[str, t.Word] = {}
        for word in introduced:
            self._define(word, own)
        for statement in block.statements:
            scope = outer | own
            match statement:
                case t.Let():
                    self._expression(statement.value, scope)
                    self._define(statement.name, own)
                case t.For():
                    self._range(statement.range, scope)
                    self._block(statement.body, scope, statement.variable)
                case t.If():
                    self._expression(statement.condition, scope)
                    for branch in filter(None, (statement.then, statement.otherwise)):
                        self._block(branch, scope)
                case t.SequenceCall():
                    self._sequence_call(statement, scope)
                case t.Slot():
                    for item in statement.items:
                        if item.index:
                            self._range(item.index, scope)
                        if item.stage:
                            self._expression(item.stage, scope)

    def _range(self, range_: t.Range, scope: dict[str, t.Word]) -> None:
        for part in filter(None, (range_.start, range_.stop, range_.step)):
            self._expression(part, scope)

    def _expression(self, node: t.Expression, scope: dict[str, t.Word]) -> None:
        if isinstance(node, t.Name):
            self._name(node, scope)
        elif isinstance(node, t.Call):
            self._call(node, scope)
        for child in _expressions(node):
            self._expression(child, scope)

    def _name(self, node: t.Name, scope: dict[str, t.Word]) -> None:
        if node.text in scope and scope[node.text] is not self._globals.get(node.text):
            return  # a name of a body, whatever the file calls by it
        if node.text in self._functions or node.text in BUILTINS:
            self._report("P205", f"`{node.text}` is a function", node, f"call it: {node.text}(…)")
        elif node.text in self._sequences:
            self._report("P205", f"`{node.text}` is a sequence and has no value", node)
        elif node.text not in scope:
            self._report("P201", f"unknown name `{node.text}`", node, did_you_mean(node.text, scope))

    def _call(self, node: t.Call, scope: dict[str, t.Word]) -> None:
        name = node.function.text
        if function := self._functions.get(name):
            self._count(node.function, len(node.arguments), len(function.parameters), function)
        elif name in _VARIADIC:
            if not node.arguments:
                self._report("P205", f"`{name}` needs at least one argument", node.function)
        elif name in BUILTINS:
            self._count(node.function, len(node.arguments), 1, None)
        elif name in self._sequences:
            self._report("P205", f"`{name}` is a sequence and has no value", node.function)
        elif name in scope:
            self._report("P205", f"`{name}` is not a function", node.function)
        else:
            help_ = did_you_mean(name, [*self._functions, *BUILTINS])
            self._report("P201", f"unknown function `{name}`", node.function, help_)

    def _sequence_call(self, node: t.SequenceCall, scope: dict[str, t.Word]) -> None:
        for argument in node.arguments:
            self._expression(argument, scope)
        if sequence := self._sequences.get(node.name.text):
            self._count(node.name, len(node.arguments), len(sequence.parameters), sequence)
        elif node.name.text in self._functions:
            self._report("P205", f"`{node.name.text}` is a function; only a `seq` can stand here", node.name)
        else:
            help_ = did_you_mean(node.name.text, self._sequences)
            self._report("P201", f"unknown sequence `{node.name.text}`", node.name, help_)

    def _count(self, word: t.Word, given: int, wanted: int, owner: t.Function | t.Sequence | None) -> None:
        if given != wanted:
            plural = "" if wanted == 1 else "s"
            related = [Related("defined here", owner.name.span)] if owner else []
            self._report("P205", f"`{word.text}` takes {wanted} argument{plural}, not {given}", word, None, *related)

    def _recursion(self) -> None:
        """Functions and sequences that reach themselves; one finding a cycle, with its chain of calls."""
        bodies: dict[str, t.Node] = {name: f.value for name, f in self._functions.items()}
        bodies |= {name: s.body for name, s in self._sequences.items()}
        calls = {name: {w.text: w for w in _called(body) if w.text in bodies} for name, body in bodies.items()}
        finished: set[str] = set()
        for name in bodies:
            for chain in _cycles_from(name, calls, finished):
                words = [calls[caller][callee] for caller, callee in pairwise(chain)]
                route = " → ".join(f"`{link}`" for link in chain)
                self._report("P207", f"a definition that calls itself: {route}", words[-1], "use a `for` loop")


def _first_by_name(statements: Iterable[t.Function] | Iterable[t.Sequence]) -> dict:  # type: ignore[type-arg]
    found: dict[str, t.Function | t.Sequence] = {}
    for statement in statements:
        found.setdefault(statement.name.text, statement)
    return found


def _cycles_from(start: str, calls: dict[str, dict[str, t.Word]], finished: set[str]) -> Iterator[list[str]]:
    """Chains of calls back to a name, both ends included, among what is not finished. Linear in the calls."""
    if start in finished:
        return
    stack, path = [iter(calls[start])], {start: None}
    while stack:
        callee = next(stack[-1], None)
        if callee is None:
            stack.pop()
            finished.add(path.popitem()[0])
        elif callee in path:
            names = list(path)
            yield [*names[names.index(callee) :], callee]
        elif callee not in finished:
            path[callee] = None
            stack.append(iter(calls[callee]))


def _children(node: t.Node) -> Iterator[t.Node]:
    for value in vars(node).values():
        if isinstance(value, t.Node):
            yield value
        elif isinstance(value, tuple):
            yield from (part for part in value if isinstance(part, t.Node))


def _expressions(node: t.Node) -> Iterator[t.Expression]:
    """The expressions directly inside a node."""
    return (child for child in _children(node) if isinstance(child, t.Expression))


def _called(node: t.Node) -> Iterator[t.Word]:
    """What a body calls, anywhere inside it."""
    if isinstance(node, t.Call):
        yield node.function
    if isinstance(node, t.SequenceCall):
        yield node.name
    for child in _children(node):
        yield from _called(child)


def free_names(node: t.Node) -> Iterator[str]:
    """The names that a part of a tree mentions, calls included."""
    if isinstance(node, t.Name):
        yield node.text
    if isinstance(node, t.Call):
        yield node.function.text
    for child in _children(node):
        yield from free_names(child)
