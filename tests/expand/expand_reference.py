"""A second reading of language.md, one operation at a time: what ``expand`` is compared with.

It walks the typed tree with a dictionary of names, as slow and as plain as it gets, and shares
nothing with the vectorised expander but the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from piper_dsl.syntax import tree as t

PER_STAGE = ("OPT", "REDUCE_GRAD", "UNSHARD", "RESHARD")
Row = list[tuple[str, int, int | None, bool]]
Names = dict[str, int]


class RefusedError(Exception):
    """The file has no meaning: it divides by zero, names a chunk that is not there, …"""


class Interpreter:
    """One file under one set of parameters; ``rows()`` are (kind, stage, microbatch, joined) per rank."""

    def __init__(self, file: t.File, parameters: Mapping[str, int]) -> None:
        self.file = file
        self.functions = {s.name.text: s for s in file.statements if isinstance(s, t.Function)}
        self.sequences = {s.name.text: s for s in file.statements if isinstance(s, t.Sequence)}
        self.top: Names = {}
        self.owned: list[list[int]] | None = None
        sizes: dict[str, int] = {}
        for statement in file.statements:
            match statement:
                case t.Param(name=word, default=value):
                    self.top[word.text] = parameters.get(word.text, None) if word.text in parameters else self.of(value)
                case t.Let(name=word, value=value):
                    self.top[word.text] = self.of(value)
                case t.Size(which=which, value=value):
                    sizes[which] = self.of(value)
                case t.Require(condition=condition) if not self.of(condition):
                    raise RefusedError("a rule does not hold")
        self.ranks = sizes["ranks"]
        self.stages = sizes.get("stages", self.ranks)
        if min(self.ranks, self.stages, sizes["microbatches"]) < 1:
            raise RefusedError("a size is not positive")
        self.owned = [[s for s in range(self.stages) if self.home(s) == rank] for rank in range(self.ranks)]

    def of(self, node: t.Expression) -> int:
        return self.value(node, self.top, None)

    def home(self, stage: int) -> int:
        for statement in self.file.statements:
            if isinstance(statement, t.PlaceNamed) and statement.name.text == "vee":
                lap, step = divmod(stage, self.ranks)
                return self.ranks - 1 - step if lap % 2 else step
            if isinstance(statement, t.PlaceRule):
                rank = self.value(statement.rank, self.top | {statement.stage.text: stage}, None)
                if not 0 <= rank < self.ranks:
                    raise RefusedError("no such rank")
                return rank
        return stage % self.ranks

    # --- bodies ------------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        bodies: dict[int, tuple[t.RankBody, Names]] = {}
        bodies_in_order = [s for s in self.file.statements if isinstance(s, t.RankBody)]
        for body in bodies_in_order:
            if not self.is_rest(body):
                for rank in self.numbers(body.selector, self.top, None):
                    if rank in bodies or not 0 <= rank < self.ranks:
                        raise RefusedError("two bodies, or no such rank")
                    bodies[rank] = (body, {})
        for body in bodies_in_order:
            if self.is_rest(body):
                for rank in range(self.ranks):
                    bodies.setdefault(rank, (body, {body.selector.start.text: rank}))  # type: ignore[attr-defined]
        if len(bodies) < self.ranks:
            raise RefusedError("a rank without a body")
        return [list(self.block(bodies[rank][0].body, self.top | bodies[rank][1], rank)) for rank in range(self.ranks)]

    def is_rest(self, body: t.RankBody) -> bool:
        start = body.selector.start
        return body.selector.stop is None and isinstance(start, t.Name) and start.text not in self.top

    def block(self, block: t.Block, outer: Names, rank: int) -> Iterator[tuple[str, int, int | None, bool]]:
        names = dict(outer)
        for statement in block.statements:
            match statement:
                case t.Let(name=word, value=value):
                    names[word.text] = self.value(value, names, rank)
                case t.For(variable=word, range=range_, body=body):
                    for number in self.numbers(range_, names, rank):
                        yield from self.block(body, names | {word.text: number}, rank)
                case t.If(condition=condition, then=then, otherwise=otherwise):
                    if self.value(condition, names, rank):
                        yield from self.block(then, names, rank)
                    elif otherwise:
                        yield from self.block(otherwise, names, rank)
                case t.SequenceCall(name=word, arguments=arguments):
                    sequence = self.sequences[word.text]
                    values = [self.value(argument, names, rank) for argument in arguments]
                    own = dict(zip([p.text for p in sequence.parameters], values, strict=True))
                    yield from self.block(sequence.body, self.top | own, rank)
                case t.Slot(items=items):
                    for number, item in enumerate(items):
                        for kind, stage, microbatch in self.item(item, names, rank):
                            yield kind, stage, microbatch, number > 0
                case t.Literals():
                    yield from self.literals(statement, rank)

    def item(self, item: t.OperationItem, names: Names, rank: int) -> list[tuple[str, int, int | None]]:
        kind = item.kind.name
        if (kind in PER_STAGE) == (item.index is not None):
            raise RefusedError("a form its kind does not have")
        microbatches = [None] if item.index is None else self.numbers(item.index, names, rank)
        if item.stage is not None:
            stages = [self.value(item.stage, names, rank)]
        elif kind in PER_STAGE:
            stages = self.owned[rank]
        else:
            stages = [self.only_stage(rank)]
        if any(abs(number) >= 2**31 for number in [*stages, *(m for m in microbatches if m is not None)]):
            raise RefusedError("more than 32 bits")
        return [(kind, stage, microbatch) for stage in stages for microbatch in microbatches]

    def literals(self, run: t.Literals, rank: int) -> Iterator[tuple[str, int, int | None, bool]]:
        text = run.span.source.text
        for start, end, joined in zip(run.starts, run.ends, run.joined, strict=True):
            token = text[start:end]
            stage = token[: len(token) - len(token.lstrip("0123456789"))]
            microbatch = token[len(token.rstrip("0123456789")) :]
            kind = token[len(stage) : len(token) - len(microbatch)]
            home = int(stage) if stage else self.only_stage(rank)
            yield kind, home, int(microbatch) if microbatch else None, bool(joined)

    def only_stage(self, rank: int) -> int:
        if len(self.owned[rank]) != 1:
            raise RefusedError("which stage?")
        return self.owned[rank][0]

    def numbers(self, range_: t.Range, names: Names, rank: int | None) -> range:
        start = self.value(range_.start, names, rank)
        if range_.stop is None:
            return range(start, start + 1)
        stop = self.value(range_.stop, names, rank)
        step = self.value(range_.step, names, rank) if range_.step else 1
        if step == 0:
            raise RefusedError("step 0")
        return range(start, stop, step)

    # --- expressions -------------------------------------------------------------------------

    def value(self, node: t.Expression, names: Names, rank: int | None) -> int:
        value = int(self._value(node, names, rank))
        if abs(value) > 10**15:
            raise RefusedError("too large")
        return value

    def _value(self, node: t.Expression, names: Names, rank: int | None) -> int:
        def of(part: t.Expression) -> int:
            return self.value(part, names, rank)

        match node:
            case t.Number(value=value):
                return value
            case t.Name(text=text):
                return names[text]
            case t.Unary(operator=operator, operand=operand):
                value = of(operand)
                return {"-": -value, "+": value, "not": not value}[operator]
            case t.Arithmetic(operands=operands, operators=operators):
                value = of(operands[0])
                for operator, operand in zip(operators, operands[1:], strict=True):
                    value = _arithmetic(value, operator.text, of(operand))
                return value
            case t.Compare(operands=operands, operators=operators):
                values = [of(operand) for operand in operands]
                links = zip(values, operators, values[1:], strict=False)
                return all(_compare(left, operator.text, right) for left, operator, right in links)
            case t.Logic(operator="and", operands=operands):
                return all(of(operand) for operand in operands)
            case t.Logic(operands=operands):
                return any(of(operand) for operand in operands)
            case t.Conditional(then=then, condition=condition, otherwise=otherwise):
                return of(then) if of(condition) else of(otherwise)
            case t.Call(function=word, arguments=arguments):
                return self._call(word.text, [of(argument) for argument in arguments], rank)
        raise AssertionError(node)

    def _call(self, name: str, arguments: list[int], rank: int | None) -> int:
        if name == "stage":
            if not 0 <= arguments[0] < len(self.owned[rank]):
                raise RefusedError("no such chunk")
            return self.owned[rank][arguments[0]]
        if name in ("min", "max", "abs"):
            return {"min": min, "max": max, "abs": lambda values: abs(values[0])}[name](arguments)
        function = self.functions[name]
        own = dict(zip([p.text for p in function.parameters], arguments, strict=True))
        return self.value(function.value, self.top | own, rank)


def _arithmetic(left: int, operator: str, right: int) -> int:
    if operator in ("//", "%") and right == 0:
        raise RefusedError("division by zero")
    value = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "//": lambda: left // right,
        "%": lambda: left % right,
    }[operator]()
    if abs(value) > 10**15:
        raise RefusedError("too large")
    return value


def _compare(left: int, operator: str, right: int) -> bool:
    return {
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
        "==": left == right,
        "!=": left != right,
    }[operator]
