"""Text to tree. Every mistake is reported in one run: after one, parsing resumes at the next statement."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedToken
from lark.parsers.lalr_interactive_parser import InteractiveParser

from ..diagnostics import Diagnostic, PipeError, Source, Span, in_source_order
from . import tree as t
from .builder import build
from .expected import explain_unexpected

__all__ = ["lex", "parse"]

MAX_DEPTH = 100
"""Brackets, `else if` chains and nested conditionals may be this deep together."""
MAX_FINDINGS = 100
MAX_CHARACTERS = 256 * 2**20

_RESUME = frozenset(
    {
        "SCHEDULE",
        "PARAM",
        "LET",
        "FN",
        "SEQ",
        "REQUIRE",
        "RANKS",
        "MICROBATCHES",
        "STAGES",
        "PLACE",
        "EDGE",
        "TIE",
        "COST",
        "RANK",
        "FOR",
        "RBRACE",
        "$END",
    }
)
_OPENING, _CLOSING = frozenset({"LBRACE", "LPAR", "LSQB"}), frozenset({"RBRACE", "RPAR", "RSQB"})
_DEEPENING = frozenset({"IF", "ELSE", "NOT"})


class _StrayTokens:
    """Keeps the terminals that no rule uses, so that they reach the parser as tokens."""

    always_accept = ("MALFORMED", "BAD_STRING", "UNKNOWN", "COMMENT")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        return stream


@cache
def _lark(without: str = "") -> Lark:
    """The parser, its grammar without one of its lines where that is asked for."""
    grammar = files("piper_dsl.grammar").joinpath("pipe.lark").read_text(encoding="utf-8").replace(without, "")
    return Lark(
        grammar,
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

    def run(self) -> tuple[Tree[Token] | None, list[Diagnostic]]:
        """The tree of what parsed (None where nothing can be said) and the syntax errors."""
        depth, bonus = 0, 0
        for token in self._tokens():
            depth += (token.type in _OPENING) - (token.type in _CLOSING)
            bonus = bonus + 1 if token.type in _DEEPENING else 0 if token.type in _RESUME else bonus
            if depth + bonus > MAX_DEPTH:
                message = f"nested more than {MAX_DEPTH} deep"
                self._report(Diagnostic("P102", message, self._span(token), "give parts of it a name with `let`"))
                return None, self._findings
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
        if self._skipping and not self._resume_at(token):
            return None
        try:
            return self._automaton.feed_token(token)
        except UnexpectedToken:
            self._report(explain_unexpected(self._source, token, self._automaton))
            self._skipping = True
            if self._resume_at(token):
                return self._automaton.feed_token(token)
            return None

    def _report(self, finding: Diagnostic) -> None:
        self._findings.append(finding)

    def _span(self, token: Token) -> Span:
        return Span(self._source, token.start_pos or 0, token.end_pos or 0)

    def _resume_at(self, token: Token) -> bool:
        """Drops the unfinished statement if a new one starts (or a block ends) at ``token``."""
        if token.type not in _RESUME:
            return False
        states = self._automaton.parser_state.state_stack
        actions = self._automaton.parser_state.parse_conf.parse_table.states
        keep = len(states)
        while keep and token.type not in actions[states[keep - 1]]:
            keep -= 1
        if not keep:
            return False
        del states[keep:]
        del self._automaton.parser_state.value_stack[keep - 1 :]
        self._skipping = False
        return True
