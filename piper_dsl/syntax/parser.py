"""Text to tree. Every mistake is reported in one run: after one, parsing resumes at the next statement."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from copy import copy
from functools import cache
from importlib.resources import files
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedToken
from lark.parsers.lalr_interactive_parser import InteractiveParser
from platformdirs import user_cache_path

from ..diagnostics import Diagnostic, PipeError, Source, Span, in_source_order
from . import tree as t
from .builder import build
from .expected import explain_unexpected

__all__ = ["lex", "parse"]

MAX_DEPTH = 100
"""Brackets may be this deep, and so may blocks, signs, conditionals and `else if` chains."""
MAX_FINDINGS = 100
MAX_CHARACTERS = 256 * 2**20
MAX_TOKENS = 500_000
"""Words of a file; a run of literal operations is one."""

_TOP = frozenset(
    {
        "$END",
        "AUTO",
        "BLOCK",
        "COST",
        "EDGE",
        "FN",
        "MICROBATCHES",
        "PARAM",
        "PLACE",
        "RANK",
        "RANKS",
        "REQUIRE",
        "SCHEDULE",
        "SEQ",
        "STAGES",
        "TIE",
    }
)
"""What starts a statement at the top, and only there: parsing always resumes at these."""
_INNER = frozenset({"FOR", "LET", "RBRACE"})
"""What starts or ends a statement of a body too: parsing resumes at these outside of skipped blocks."""
_FIRST = frozenset({"KIND", "LITERALS", "NAME", "UNDERSCORE", "IF"})
"""What may start a statement, but mostly stands inside one: only behind a block that was skipped."""
_OPENING, _CLOSING = frozenset({"LBRACE", "LPAR", "LSQB"}), frozenset({"RBRACE", "RPAR", "RSQB"})


class _StrayTokens:
    """Keeps the terminals that no rule uses, so that they reach the parser as tokens."""

    always_accept = ("MALFORMED", "BAD_STRING", "UNKNOWN", "COMMENT")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        return stream


def _cache_file(comments: bool) -> str | bool:
    """Where lark keeps the tables it makes of the grammar, which takes longer than most checks; False for nowhere.

    Lark makes them anew where the file is of another grammar, or of another version of itself.
    """
    name = f"{'lexer' if comments else 'parser'}-{sys.implementation.cache_tag}.lark"
    try:
        return str(user_cache_path("piper-dsl", ensure_exists=True) / name)
    except OSError:
        return False


@cache
def _lark(without: str = "") -> Lark:
    """The parser, its grammar without one of its lines where that is asked for."""
    grammar = files("piper_dsl.grammar").joinpath("pipe.lark").read_text(encoding="utf-8").replace(without, "")
    return Lark(
        grammar,
        cache=_cache_file(bool(without)),
        parser="lalr",
        lexer="basic",
        propagate_positions=True,
        maybe_placeholders=True,
        postlex=_StrayTokens(),
    )


@cache
def _lexer() -> Lark:
    """The same lexer, which lets comments through."""
    return _lark("%ignore COMMENT")


def lex(source: Source) -> Iterator[Token]:
    """The tokens of a text that parses, comments included."""
    return _lexer().lex(source.text)


def parse(source: Source) -> t.File:
    """The tree of a ``.pipe`` text.

    Raises :class:`PipeError` with every syntax error found, in source order.
    """
    if len(source.text) > MAX_CHARACTERS:
        message = f"the file has {len(source.text):,} characters; at most {MAX_CHARACTERS:,} are read"
        raise PipeError(Diagnostic("P103", message, Span(source, 0, 0)))
    parsed, findings = _Recovery(source).run()
    if parsed is None:
        raise PipeError(*in_source_order(findings))
    if deep := _deepest(source, parsed):
        raise PipeError(*in_source_order([*findings, deep]))
    file, numbers = build(source, parsed)
    if findings or numbers:
        raise PipeError(*in_source_order([*findings, *numbers]))
    return file


class _Recovery:
    """One run of the LALR automaton over one text, dropping statements that do not parse."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._findings: list[Diagnostic] = []
        self._automaton: InteractiveParser = _lark().parse_interactive(source.text)
        self._skipping = False
        self._skipped_depth = 0
        self._block_skipped = False

    def run(self) -> tuple[Tree[Token] | None, list[Diagnostic]]:
        """The tree of what parsed (None where nothing can be said) and the syntax errors."""
        depth = 0
        result = None
        for number, token in enumerate(self._tokens()):
            if number >= MAX_TOKENS:
                message = f"the file has more than {MAX_TOKENS:,} words"
                return None, [*self._findings, Diagnostic("P103", message, self._span(token))]
            depth += (token.type in _OPENING) - (token.type in _CLOSING)
            if depth > MAX_DEPTH or len(self._automaton.parser_state.state_stack) > 20 * MAX_DEPTH:
                return None, [*self._findings, too_deep(self._span(token))]
            result = self._feed(token)
            if len(self._findings) >= MAX_FINDINGS:
                return None, self._findings
        return result, self._findings

    def _tokens(self) -> Iterator[Token]:
        last = None
        for token in self._automaton.lexer_thread.lex(self._automaton.parser_state):
            yield token
            last = token
        end = len(self._source.text)
        yield Token.new_borrow_pos("$END", "", last) if last else Token("$END", "", end, 1, 1, 1, 1, end)

    def _feed(self, token: Token) -> Any:
        if self._skipping:
            return self._skip(token)
        states = self._automaton.parser_state.state_stack.copy()
        try:
            return self._automaton.feed_token(token)
        except UnexpectedToken:
            # The automaton may have reduced before it stopped; what could have stood here it knew before.
            finding, name_wanted = explain_unexpected(self._source, token, self._probe(states).accepts())
            self._findings.append(finding)
        if name_wanted:
            # A keyword in the place of a name is read as the name it was meant to be.
            return self._automaton.feed_token(Token.new_borrow_pos("NAME", str(token), token))
        self._skipping, self._skipped_depth, self._block_skipped = True, 0, False
        return self._skip(token)

    def _span(self, token: Token) -> Span:
        return Span(self._source, token.start_pos or 0, token.end_pos or 0)

    def _skip(self, token: Token) -> Any:
        """Passes over a token of a statement that does not parse, or resumes at it."""
        if token.type in _TOP or (not self._skipped_depth and token.type in _INNER):
            return self._resume(token)
        if self._block_skipped and not self._skipped_depth and token.type in _FIRST:
            return self._resume(token)
        if token.type == "LBRACE":
            self._skipped_depth += 1
        elif token.type == "RBRACE":
            self._skipped_depth -= 1
            self._block_skipped = True
        return None

    def _resume(self, token: Token) -> Any:
        """Drops as little of the unfinished statement as lets the automaton take ``token``."""
        state = self._automaton.parser_state
        for keep in range(len(state.state_stack), 0, -1):
            try:
                self._probe(state.state_stack[:keep]).feed_token(token)
            except UnexpectedToken:
                continue
            del state.state_stack[keep:]
            del state.value_stack[keep - 1 :]
            self._skipping = False
            return self._automaton.feed_token(token)
        return None

    def _probe(self, states: list[int]) -> InteractiveParser:
        """An automaton in the given states that builds nothing: for asking what it would take."""
        probe: InteractiveParser = self._automaton.copy(deepcopy_values=False)
        probe.parser_state.parse_conf = copy(probe.parser_state.parse_conf)
        probe.parser_state.parse_conf.callbacks = {}
        probe.parser_state.state_stack = states.copy()
        probe.parser_state.value_stack = [None] * (len(states) - 1)
        return probe


def too_deep(span: Span) -> Diagnostic:
    """The finding about nesting beyond :data:`MAX_DEPTH`."""
    return Diagnostic("P102", f"nested more than {MAX_DEPTH} deep", span, "give parts of it a name with `let`")


def _deepest(source: Source, parsed: Tree[Token]) -> Diagnostic | None:
    """A finding where a tree is too deep to be walked, at the first node that is."""
    level: list[Tree[Token]] = [parsed]
    for _ in range(2 * MAX_DEPTH + 20):  # a block in a block is two nodes
        level = [child for node in level for child in node.children if isinstance(child, Tree)]
        if not level:
            return None
    meta = level[0].meta
    return too_deep(Span(source, getattr(meta, "start_pos", 0), getattr(meta, "end_pos", 0)))
