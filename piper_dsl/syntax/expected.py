"""A token that does not fit, explained in the reader's words."""

from __future__ import annotations

from lark import Token

from ..diagnostics import Diagnostic, Source, Span

_STATEMENTS = frozenset(
    {
        "AUTO",
        "BLOCK",
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
    }
)
_EXPRESSION = frozenset({"NUMBER", "NAME", "LPAR"})
_OPERATION = frozenset({"KIND", "LITERALS"})
_CONTINUATIONS = frozenset({"AMPERSAND", "AT", "LPAR"})
"""What can go on after almost anything: only worth naming where nothing else can stand."""
_OPERATORS = frozenset({"SUM", "PRODUCT", "COMPARE", "AND", "OR"})
_WORDS = {
    "NAME": "a name",
    "STRING": 'a text in "quotes"',
    "NUMBER": "a number",
    "LITERALS": "a literal operation such as 2F0",
    "KIND": "a kind of operation (F, B, I, W, …)",
    "$END": "the end of the file",
    "EQUAL": "`=`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "COLON": "`:`",
    "COMMA": "`,`",
    "AT": "`@`",
    "AMPERSAND": "`&`",
    "__ANON_0": "`->`",
    "IN": "`in`",
    "ON": "`on`",
    "ELSE": "`else`",
    "IF": "`if`",
    "FOR": "`for`",
    "LET": "`let`",
    "UNDERSCORE": "`_`",
    "NOT": "`not`",
}
_OPERATION_HELP = "an operation is written F[i], F[a:b] or, literally, 2F0 (stage 2, microbatch 0)"


def explain_unexpected(source: Source, token: Token, accepted: set[str]) -> tuple[Diagnostic, bool]:
    """The finding for ``token``, where only ``accepted`` could stand, and whether a name was wanted."""
    return _explain(source, token, accepted), "NAME" in accepted and _is_keyword(token)


def _explain(source: Source, token: Token, accepted: set[str]) -> Diagnostic:
    span = Span(source, token.start_pos or 0, token.end_pos or 0)
    if token.type == "$END":
        span = Span(source, len(source.text.rstrip()), len(source.text.rstrip()))
    if token.type == "MALFORMED":
        return Diagnostic("P104", f"`{token}` is not an operation", span, _OPERATION_HELP)
    if token.type == "BAD_STRING":
        return Diagnostic("P101", "a text without its closing quote", span, 'close it with `"` on the same line')
    if token.type == "UNKNOWN":
        return Diagnostic("P101", f"a character the language does not use: {str(token)!r}", span)
    if "NAME" in accepted and _is_keyword(token):
        wish = "choose another name" if accepted == {"NAME"} else f"expected {_in_words(accepted)}"
        return Diagnostic("P101", f"`{token}` is a word of the language and cannot be a name", span, wish)
    found = "the end of the file" if token.type == "$END" else f"`{_shortened(token)}`"
    return Diagnostic("P101", f"expected {_in_words(accepted)}, found {found}", span)


def _is_keyword(token: Token) -> bool:
    return token.type not in ("NAME", "LITERALS") and str(token).isidentifier()


def _shortened(token: Token) -> str:
    text = str(token).split()[0] if token.type == "LITERALS" else str(token)
    return text if len(text) <= 30 else text[:29] + "…"


def _in_words(accepted: set[str]) -> str:
    """What could stand here: the narrower choices first, operators last."""
    left = set(accepted)
    words: list[str] = []
    for group, word in ((_EXPRESSION, "an expression"), (_OPERATION, "an operation"), (_STATEMENTS, "a statement")):
        if group <= left:
            words.append(word)
            left -= group | (
                {"SUM", "NOT"} if group is _EXPRESSION else {"UNDERSCORE"} if group is _OPERATION else set()
            )
    if left & _OPERATORS == _OPERATORS:
        left -= _OPERATORS | {"IF"}
        operators = ["an operator"]
    else:
        operators = []
    if words or left - _CONTINUATIONS:
        left -= _CONTINUATIONS
    words += [_WORDS.get(name, f"`{name.lower()}`") for name in sorted(left, key=_order)] + operators
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _order(name: str) -> tuple[int, str]:
    return (0 if _WORDS.get(name, "").startswith("`") else 1, name)
