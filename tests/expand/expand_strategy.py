"""Random files whose names are all in scope, so that what is left to go wrong is their meaning."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

KINDS = "FBIWR"
NAMES = tuple("abc")


@dataclass
class _Scope:
    """Names that can be read, and those that the innermost block defined itself."""

    readable: tuple[str, ...]
    own: set[str] = field(default_factory=set)
    in_body: bool = False

    def inner(self, *introduced: str) -> _Scope:
        return _Scope((*self.readable, *introduced), set(introduced), self.in_body)


class _Writer:
    def __init__(self, draw: st.DrawFn, functions: dict[str, int], sequences: dict[str, int], chunks: int) -> None:
        self.draw = draw
        self.functions = functions
        self.sequences = sequences
        self.chunks = chunks

    def pick(self, *options: str) -> str:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def expression(self, scope: _Scope, depth: int = 2) -> str:
        if depth == 0 or self.number(0, 3) == 0:
            return self.pick(*scope.readable) if scope.readable and self.number(0, 2) else str(self.number(0, 4))
        one, two = self.expression(scope, depth - 1), self.expression(scope, depth - 1)
        match self.number(0, 9):
            case 0 | 1:
                return f"({one} {self.pick('+', '-', '*')} {two})"
            case 2:
                divisor = self.pick(f"(abs({two}) + 1)", f"(-1 - abs({two}))", "3", "-2", two)
                return f"({one} {self.pick('//', '%')} {divisor})"
            case 3:
                return f"({one} {self.pick('<', '<=', '>', '>=', '==', '!=')} {two})"
            case 4:
                return f"({one} {self.pick('and', 'or')} {two})"
            case 5:
                return f"({self.pick('not ', '-', '+')}{one})"
            case 6:
                return f"({one} if {two} else {self.expression(scope, depth - 1)})"
            case 7 if self.functions:
                name = self.pick(*self.functions)
                return f"{name}({', '.join(self.expression(scope, depth - 1) for _ in range(self.functions[name]))})"
            case 8 if scope.in_body:
                return f"stage({self.number(0, self.chunks - 1)})"
            case _:
                return f"{self.pick('min', 'max')}({one}, {two})"

    def small(self, scope: _Scope) -> str:
        """An expression between -3 and 4."""
        return f"max(-3, min(4, {self.expression(scope)}))"

    def range(self, scope: _Scope) -> str:
        step = self.pick("", ":1", ":2", ":-1", ":-2", f":{self.small(scope)}")
        return f"{self.small(scope)}:{self.small(scope)}{step}"

    def operation(self, scope: _Scope, *, single: bool = False) -> str:
        stage = f"@({self.expression(scope, 1)})"
        if self.chunks == 1 and self.number(0, 1):
            stage = ""
        if self.number(0, 5) == 0 and not single:
            return self.pick("OPT", "REDUCE_GRAD", "OPT" + stage, "UNSHARD" + stage, "RESHARD" + stage)
        index = self.range(scope) if not single and self.number(0, 2) == 0 else self.expression(scope)
        return f"{self.pick(*KINDS)}[{index}]{stage}"

    def literals(self) -> str:
        stage = "" if self.chunks == 1 and self.number(0, 1) else str(self.number(0, 3))
        tokens = [f"{stage}{self.pick(*KINDS)}{self.number(0, 9)}" for _ in range(self.number(1, 3))]
        return self.pick(" ", " & ").join(tokens)

    def statement(self, scope: _Scope, depth: int) -> str:
        choice = self.number(0, 9 if depth else 5)
        free = [name for name in NAMES if name not in scope.own]
        match choice:
            case 0 | 1:
                return self.operation(scope)
            case 2:
                return f"{self.operation(scope, single=True)} & {self.operation(scope, single=True)}"
            case 3:
                return self.pick("_", self.literals())
            case 4 | 5 if free:
                value, name = self.expression(scope), self.pick(*free)
                scope.own.add(name)
                scope.readable = (*scope.readable, name)
                return f"let {name} = {value}"
            case 6:
                name, range_ = self.pick(*NAMES), self.range(scope)
                return f"for {name} in {range_} {self.block(scope.inner(name), depth - 1)}"
            case 7 | 8:
                condition = self.expression(scope)
                otherwise = f" else {self.block(scope.inner(), depth - 1)}" if self.number(0, 1) else ""
                return f"if {condition} {self.block(scope.inner(), depth - 1)}{otherwise}"
            case 9 if self.sequences:
                name = self.pick(*self.sequences)
                return f"{name}({', '.join(self.small(scope) for _ in range(self.sequences[name]))})"
        return "_"

    def block(self, scope: _Scope, depth: int) -> str:
        return f"{{ {' '.join(self.statement(scope, depth) for _ in range(self.number(1, 3)))} }}"


@st.composite
def files(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    """A ``.pipe`` text and overrides of its parameters ``p`` and ``q``."""
    ranks, chunks = draw(st.integers(1, 4)), draw(st.sampled_from([1, 1, 2]))
    writer = _Writer(draw, {}, {}, chunks)
    top = _Scope(("p", "q"))
    lines = [f"param p = {draw(st.integers(-2, 5))}", "param q = p + 1"]
    for name in ("fa", "fb")[: draw(st.integers(0, 2))]:
        own = ("x", "y")[: draw(st.integers(1, 2))]
        lines.append(f"fn {name}({', '.join(own)}) = {writer.expression(_Scope((*own, 'p', 'q')))}")
        writer.functions[name] = len(own)
    for name in ("k", "l")[: draw(st.integers(0, 2))]:
        lines.append(f"let {name} = {writer.expression(top)}")
        top.readable = (*top.readable, name)
    if draw(st.integers(0, 4)) == 0:
        lines.append(f"require {writer.expression(top)}")
    lines += [f"ranks {ranks}", "microbatches 10", f"stages {ranks * chunks}"]
    lines.append(writer.pick("", "place loop", "place vee", f"place s on {ranks - 1} - s % {ranks}"))
    for name in ("sa", "sb")[: draw(st.integers(0, 2))]:
        own = ("x", "y")[: draw(st.integers(0, 2))]
        scope = _Scope((*top.readable, *own), set(own), in_body=True)
        lines.append(f"seq {name}({', '.join(own)}) {writer.block(scope, 1)}")
        writer.sequences[name] = len(own)
    body = _Scope(top.readable, in_body=True)
    selectors = draw(
        st.sampled_from([("r",), ("0", "r"), (f"0:{ranks}:2", "r"), (f"0:{ranks}",), (f"{ranks - 1}", "r")])
    )
    for selector in selectors:
        scope = body.inner()
        if selector == "r":
            scope = _Scope((*body.readable, "r"), set(), in_body=True)
        lines.append(f"rank {selector} {writer.block(scope, 3)}")
    overrides = draw(st.fixed_dictionaries({}, optional={"p": st.integers(-2, 5), "q": st.integers(-2, 5)}))
    return "\n".join(line for line in lines if line), overrides
