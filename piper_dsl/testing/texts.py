"""Hypothesis strategies for texts: files that parse and use the whole grammar, and files that may not."""

from __future__ import annotations

import re
from collections.abc import Callable

from hypothesis import strategies as st

from ..ir.operations import PER_MICROBATCH, Kind
from ..library import library_names, read_source

__all__ = ["broken_text", "source_text"]

_KINDS = [kind.name for kind in Kind]
_PER_CELL = [kind.name for kind in PER_MICROBATCH]
_PER_STAGE = [kind.name for kind in Kind if kind not in PER_MICROBATCH]
_NAMES = ["i", "k", "m", "p", "r", "s", "x1", "chunk", "mb", "warm_up", "Fx", "B_", "_a", "OPTS", "iff", "loop", "vee"]
_STRINGS = ['""', '"1F1B"', '"a # b"', '"rank 0: F0 { } & @"', '"… λ × é"', '"\t\'\\"']
_COMMENTS = [
    "#",
    "# plain",
    "#tight",
    '# "quoted',
    "# rank 0: F0 }",
    "# a # b",
    "## … λ",
    "# trailing \t ",
    "# \f \x85 \u2028",
]
_BLANKS = ["\n", "\n\n", "\n\n\n", "  ", "\t", "\r\n", "\f", "\n    "]
_JOINED_OPERATORS = {"//", "<=", ">=", "==", "!=", "->"}
_DEPTH = 3


class _Writer:
    """Draws the tokens of a file, one method a rule of the grammar; the first choice is the plainest."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def _number(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def _maybe(self) -> bool:
        return self._draw(st.booleans())

    def _pick(self, options: list[str]) -> str:
        return self._draw(st.sampled_from(options))

    def _one_of(self, *rules: Callable[[], list[str]]) -> list[str]:
        return self._draw(st.sampled_from(rules))()

    def _name(self) -> str:
        return self._pick(_NAMES)

    def _list(self, item: Callable[[], list[str]], low: int, high: int, separator: str = ",") -> list[str]:
        tokens: list[str] = []
        for number in range(self._number(low, high)):
            tokens += [separator, *item()] if number else item()
        return tokens

    # --- expressions ---------------------------------------------------------------------------

    def expression(self, level: int = 0, depth: int = _DEPTH) -> list[str]:
        """An expression that binds at least as tightly as ``level``: 0 conditional, …, 8 atom."""
        if depth == 0:
            return self._leaf()
        deeper = depth - 1
        rules: list[tuple[int, Callable[[], list[str]]]] = [
            (8, self._leaf),
            (8, self._leaf),
            (8, lambda: ["(", *self.expression(0, deeper), ")"]),
            (8, lambda: self._call(deeper)),
            (7, lambda: [self._pick(["-", "+"]), *self.expression(7, deeper)]),
            (6, lambda: self._chain(7, ["*", "//", "%"], deeper)),
            (5, lambda: self._chain(6, ["+", "-"], deeper)),
            (4, lambda: self._chain(5, ["<", "<=", "==", "!=", ">", ">="], deeper)),
            (3, lambda: ["not", *self.expression(3, deeper)]),
            (2, lambda: self._chain(3, ["and"], deeper)),
            (1, lambda: self._chain(2, ["or"], deeper)),
            (0, lambda: self._conditional(deeper)),
        ]
        return self._one_of(*(rule for binds, rule in rules if binds >= level))

    def _leaf(self) -> list[str]:
        return [str(self._number(0, 12))] if self._maybe() else [self._name()]

    def _chain(self, level: int, operators: list[str], depth: int) -> list[str]:
        tokens = self.expression(level, depth)
        for _ in range(self._number(1, 2)):
            tokens += [self._pick(operators), *self.expression(level, depth)]
        return tokens

    def _conditional(self, depth: int) -> list[str]:
        then, condition = self.expression(1, depth), self.expression(1, depth)
        return [*then, "if", *condition, "else", *self.expression(0, depth)]

    def _call(self, depth: int) -> list[str]:
        name = self._pick([*_NAMES, "min", "max", "abs", "stage"])
        return [name, "(", *self._list(lambda: self.expression(0, depth), 0, 2), ")"]

    def _range(self, least: int = 2) -> list[str]:
        tokens = self.expression(depth=2)
        for _ in range(self._number(least, 3) - 1):
            tokens += [":", *self.expression(depth=2)]
        return tokens

    def _at(self) -> list[str]:
        return self._one_of(
            lambda: ["@", *self._leaf()],
            lambda: ["@", *self._call(1)],
            lambda: ["@", "(", *self.expression(depth=2), ")"],
        )

    # --- bodies --------------------------------------------------------------------------------

    def _operation(self) -> list[str]:
        tokens = [self._pick(_KINDS)]
        if self._maybe():
            tokens += ["[", *self._range(1), "]"]
        return tokens + (self._at() if self._maybe() else [])

    def _literal(self) -> str:
        if self._number(0, 3) == 3:
            return f"{self._number(0, 12)}{self._pick(_PER_STAGE)}"
        return f"{self._pick(['', '0', '1', '12'])}{self._pick(_PER_CELL)}{self._number(0, 12)}"

    def _slot(self) -> list[str]:
        return self._list(self._operation, 1, 2, "&")

    def _literals(self) -> list[str]:
        tokens = [self._literal()]
        for _ in range(self._number(0, 4)):
            tokens += [*["&"][: self._number(0, 3) == 3], self._literal()]
        return tokens

    def _run_item(self) -> list[str]:
        return self._one_of(self._literals, self._slot, lambda: ["_"])

    def _run(self) -> list[str]:
        return [token for _ in range(self._number(0, 4)) for token in self._run_item()]

    def _block(self, depth: int) -> list[str]:
        inner = [token for _ in range(self._number(0, 3)) for token in self._inner(depth)]
        return ["{", *inner, "}"]

    def _inner(self, depth: int) -> list[str]:
        if depth == 0:
            return self._run_item()
        return self._one_of(
            self._run_item,
            self._run_item,
            lambda: ["let", self._name(), "=", *self.expression()],
            lambda: ["let", self._name(), "=", *self.expression(), *self._if(depth)],
            lambda: [self._name(), "(", *self._list(lambda: self.expression(depth=1), 0, 2), ")"],
            lambda: ["for", self._name(), "in", *self._range(), *self._block(depth - 1)],
            lambda: self._if(depth),
        )

    def _if(self, depth: int, level: int = 1) -> list[str]:
        """Level 1: behind a ``let``, a condition that is a conditional stands in parentheses."""
        tokens = ["if", *self.expression(level, depth=2), *self._block(depth - 1)]
        match self._number(0, 2):
            case 1:
                tokens += ["else", *self._block(depth - 1)]
            case 2:
                tokens += ["else", *(self._if(depth - 1, 0) if depth > 1 else self._block(0))]
        return tokens

    # --- declarations --------------------------------------------------------------------------

    def statement(self) -> list[str]:
        return self._one_of(
            self._rank,
            self._rank,
            lambda: ["schedule", self._pick(_STRINGS)],
            lambda: ["param", self._name(), "=", *self.expression(), *self._message()],
            lambda: ["let", self._name(), "=", *self.expression()],
            lambda: ["fn", self._name(), "(", *self._names(), ")", "=", *self.expression()],
            lambda: ["seq", self._name(), "(", *self._names(), ")", *self._block(2)],
            lambda: ["require", *self.expression(), *self._message()],
            lambda: ["ranks", *self.expression()],
            lambda: ["microbatches", *self.expression()],
            lambda: ["stages", *self.expression()],
            self._place,
            lambda: ["edge", *self.expression(depth=1), "->", *self.expression(depth=1)],
            lambda: ["tie", *self._list(lambda: self.expression(depth=1), 2, 3)],
            self._cost,
            self._building_block,
            self._auto,
        )

    def _names(self) -> list[str]:
        return self._list(lambda: [self._name()], 0, 3)

    def _message(self) -> list[str]:
        return [",", self._pick(_STRINGS)] if self._maybe() else []

    def _place(self) -> list[str]:
        if self._maybe():
            return ["place", self._name()]
        return ["place", *self._list(lambda: [self._name()], 1, 2), "on", *self.expression()]

    def _cost(self) -> list[str]:
        kinds = self._list(lambda: [self._pick(_KINDS)], 1, 3, "&")
        return ["cost", *kinds, *(self._at() if self._maybe() else []), "=", *self.expression()]

    def _building_block(self) -> list[str]:
        items: list[str] = []
        for _ in range(self._number(0, 3)):
            items.append(self._pick(_KINDS))
            if self._maybe():
                items += ["@", self._name(), *(["at", *self.expression(depth=2)] if self._maybe() else [])]
        return ["block", *self.expression(depth=1), "{", *items, "}"]

    def _auto(self) -> list[str]:
        items: list[str] = []
        for _ in range(self._number(0, 3)):
            items.append(self._pick(_KINDS))
            if self._maybe():
                items += ["[", self._name(), "]", "@", self._name()]
            for word in ("priority", "when"):
                items += [word, *self.expression(depth=2)] if self._maybe() else []
        return ["auto", *([self._name()] if self._maybe() else []), "{", *items, "}"]

    def _rank(self) -> list[str]:
        body = self._block(_DEPTH) if self._maybe() else [":", *self._run()]
        return ["rank", *self._range(1), *body]


def _glued(left: str, right: str) -> bool:
    """Whether two tokens without a blank between them would read as something else."""
    wordish = (left[-1].isalnum() or left[-1] == "_") and (right[0].isalnum() or right[0] == "_")
    return wordish or left[-1] + right[0] in _JOINED_OPERATORS


@st.composite
def source_text(draw: st.DrawFn, *, max_statements: int = 6) -> str:
    """Texts that parse: every rule of the grammar, blanks and comments between any two tokens.

    They are syntax only. Names are rarely in scope, and most of what they say is nonsense.
    """
    writer = _Writer(draw)
    statements = [writer.statement() for _ in range(draw(st.integers(0, max_statements)))]
    tokens = [token for statement in statements for token in statement]
    starts = {sum(map(len, statements[:number])) for number in range(len(statements))}
    return _laid_out(draw, tokens, starts)


def _laid_out(draw: st.DrawFn, tokens: list[str], starts: set[int]) -> str:
    """Tokens as a text: one statement a line or all as tight as can be, and some blanks and comments."""
    tight = draw(st.booleans())
    blanks = st.sampled_from([*(f" {comment}\n" for comment in _COMMENTS), *_BLANKS])
    places = st.integers(0, len(tokens))
    extra = dict(draw(st.lists(st.tuples(places, blanks), max_size=8)))
    text = extra.get(0, "")
    for index, token in enumerate(tokens):
        blank = extra.get(index, "") if index else ""
        if index and not blank and (not tight or _glued(tokens[index - 1], token)):
            blank = "\n" if index in starts else " "
        text += blank + token
    return text + (extra.get(len(tokens), "") if tokens else "") + draw(st.sampled_from(["\n", "", " # last"]))


# --- texts that may be broken ----------------------------------------------------------------

_KEYWORDS = """
    schedule param let fn seq require ranks microbatches stages place on edge tie cost rank
    for in if else block at auto priority when and or not min max abs stage loop vee
"""
_MARKS = "{ } ( ) [ ] : , = == < -> + - * // % @ & _ # \" ' ; . / ! \\ $ …"
_NUMBERS = "0 1 2 -1 7 99999999 1000000000000000000 0F0 2F0 1I1 0OPT F0 B1 0F0x 1FOO0 3SEND_F0 99999999999F1 1F ٣"
_SPECIAL = ["\n", "\r", "\t", "\0", "\ufeff", "\ud800", '"text"', "# comment\n"]
_WORDS = [*_KEYWORDS.split(), *_MARKS.split(), *_NUMBERS.split(), *_SPECIAL, *_KINDS, *_NAMES]
_CHARACTERS = '{}()[]:,=<>-+*/%@&_#"FBIWR019ai \n'
_NESTING = [
    *("(", "[", "{", "-", "not ", "f(", "1 if ", "1 if 1 else ", "1 + ", "F0 & "),
    *("if 1 {", "if 1 { } else ", "for i in 0:1 {"),
]


def broken_text() -> st.SearchStrategy[str]:
    """Texts of which nothing is known: soups of characters and of words, files of the library and of
    :func:`source_text` with words and pieces cut, doubled or replaced, and deep nesting.
    """
    words = st.lists(st.sampled_from(_WORDS), max_size=40)
    soup = st.tuples(words, st.sampled_from(["", " "])).map(lambda drawn: drawn[1].join(drawn[0]))
    characters = st.text(st.one_of(st.sampled_from(_CHARACTERS), st.characters()), max_size=60)
    return st.one_of(soup, characters, _damaged(source_text()), _damaged(_library_text()), _nested())


@st.composite
def _library_text(draw: st.DrawFn) -> str:
    return read_source(draw(st.sampled_from(library_names()))).text


@st.composite
def _damaged(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> str:
    """Up to three words replaced, or pieces of up to 12 characters cut, replaced or doubled."""
    text = draw(texts)
    word = st.sampled_from(_WORDS)
    for _ in range(draw(st.integers(1, 3))):
        spans = [match.span() for match in re.finditer(r"\w+", text)]
        if bool(spans) and draw(st.booleans()):
            start, end = draw(st.sampled_from(spans))
            piece = draw(word)
        else:
            start = draw(st.integers(0, len(text)))
            end = min(len(text), start + draw(st.integers(0, 12)))
            piece = draw(st.one_of(st.just(""), word, st.just(text[start:end] * 2)))
        text = text[:start] + piece + text[end:]
    return text


@st.composite
def _nested(draw: st.DrawFn) -> str:
    """Something opened, signed or chained up to a thousand times, where a value or operation stands."""
    before = draw(st.sampled_from(["let x = ", "ranks 1 microbatches 1 rank 0 { ", "require ", ""]))
    opened = draw(st.sampled_from(_NESTING)) * draw(st.sampled_from([1, 10, 99, 101, 1000]))
    return before + opened + draw(st.sampled_from(["", "1", "{ }", "F0 } }", "1 ranks 1 microbatches 1 rank 0: F0"]))
