"""One canonical layout. Only whitespace changes: the words and comments of a file stay as they are.

The formatter lays out tokens, not the tree, so that what it prints parses to the same tree whatever
the expressions look like. From the tree it takes where statements start. A block stays on one line
where it fits and its author did not break it; operations that stood on one line stay together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lark import Token

from ..diagnostics import Source
from . import tree as t
from .parser import lex, parse

__all__ = ["format_source"]

WIDTH = 100
_INDENT = "  "
_TIGHT_AFTER = frozenset({"LPAR", "LSQB", "AT", "COLON"})
_TIGHT_BEFORE = frozenset({"RPAR", "RSQB", "COMMA", "COLON", "AT", "LSQB"})
_OPENS_OPERAND = frozenset(
    {
        "LPAR",
        "LSQB",
        "COMMA",
        "COLON",
        "EQUAL",
        "SUM",
        "PRODUCT",
        "COMPARE",
        "IF",
        "ELSE",
        "AND",
        "OR",
        "NOT",
        "IN",
        "ON",
    }
    | {"REQUIRE", "RANKS", "MICROBATCHES", "STAGES", "EDGE", "TIE", "RANK", "__ANON_0", "__ANON_1", "PRIORITY", "WHEN"}
)
_OPERATIONS = (t.Slot, t.Literals, t.Idle)


def format_source(source: Source) -> str:
    """The canonical text of a file. Raises :class:`~piper_dsl.diagnostics.PipeError` if it does not parse."""
    file = parse(source)
    statements = dict(_statements(file.statements))
    root = _Reader(source, statements).block(list(lex(source)))
    lines = _Printer(source).lines(root, 0)
    return "".join(f"{line}\n" for line in lines)


def _statements(statements: tuple[t.Statement, ...]) -> Iterator[tuple[int, t.Statement]]:
    """Every statement by where it starts; an ``else if`` is part of its ``if``."""
    for statement in statements:
        yield statement.span.start, statement
        match statement:
            case t.BuildingBlock() | t.Auto():
                yield from ((item.span.start, t.Idle(item.span)) for item in statement.items.lines)
            case t.Sequence() | t.For():
                yield from _statements(statement.body.statements)
            case t.RankBody():
                yield from _statements(statement.body.statements)
            case t.If():
                yield from _statements(statement.then.statements)
                otherwise = statement.otherwise
                while otherwise and otherwise.statements and otherwise.span == otherwise.statements[0].span:
                    nested = otherwise.statements[0]
                    assert isinstance(nested, t.If)
                    yield from _statements(nested.then.statements)
                    otherwise = nested.otherwise
                if otherwise:
                    yield from _statements(otherwise.statements)


@dataclass
class _Item:
    """A statement, or a comment on a line of its own (``comment`` and no parts).

    ``parts`` are tokens and the blocks between them; ``comment`` follows the statement on its line.
    ``line`` and ``blank`` tell how the author had it: the line it starts on, and whether a blank one
    comes before.
    """

    line: int
    blank: bool
    statement: t.Statement | None = None
    parts: list[Token | _Block] = field(default_factory=list)
    comment: str | None = None

    @property
    def is_operation(self) -> bool:
        return isinstance(self.statement, _OPERATIONS)


@dataclass
class _Block:
    items: list[_Item] = field(default_factory=list)
    broken: bool = False


class _Reader:
    """Tokens to items: which belong to which statement of which block."""

    def __init__(self, source: Source, statements: dict[int, t.Statement]) -> None:
        self._source = source
        self._statements = statements

    def block(self, tokens: list[Token]) -> _Block:
        root = _Block(broken=True)
        stack = [root]
        last: Token | None = None
        for token in tokens:
            block = stack[-1]
            if token.type == "COMMENT":
                self._comment(stack, token, last)
            elif token.type == "RBRACE":
                stack.pop()
            else:
                self._token(stack, token, last)
            if last is not None and last.type == "LBRACE" and token.line != last.line:
                block.broken = True
            last = token
        return root

    def _token(self, stack: list[_Block], token: Token, last: Token | None) -> None:
        block = stack[-1]
        statement = self._statements.get(token.start_pos or 0)
        in_run = bool(block.items) and isinstance(block.items[-1].statement, t.RankBody)
        if statement is not None and not (in_run and isinstance(statement, _OPERATIONS)):
            block.items.append(_Item(token.line or 0, self._blank(token, last), statement))
        if token.type == "LBRACE":
            inner = _Block()
            block.items[-1].parts.append(inner)
            stack.append(inner)
        else:
            block.items[-1].parts.append(token)

    def _comment(self, stack: list[_Block], token: Token, last: Token | None) -> None:
        """Behind a statement on its line, else on a line of its own; inside one, before it."""
        block = stack[-1]
        block.broken = True
        text = str(token).rstrip()
        open_ = block.items[-1] if block.items else None
        ended = last is None or self._ends_statement(token)
        same_line = last is not None and last.line == token.line and last.type != "LBRACE"
        if same_line and ended and open_ is not None and open_.parts and open_.comment is None:
            open_.comment = text
            return
        item = _Item(token.line or 0, self._blank(token, last), comment=text)
        if ended or open_ is None:
            block.items.append(item)
        else:
            item.blank, open_.blank = open_.blank, False
            block.items.insert(len(block.items) - 1, item)

    def _ends_statement(self, comment: Token) -> bool:
        """Whether no statement of this level is under way at a comment."""
        position = comment.start_pos or 0
        inside = [s for s in self._statements.values() if s.span.start < position < s.span.end]
        innermost = max(inside, key=lambda s: s.span.start, default=None)
        return innermost is None or any(block.span.start < position < block.span.end for block in _blocks(innermost))

    def _blank(self, token: Token, last: Token | None) -> bool:
        if last is None or last.type == "LBRACE":
            return False
        between = self._source.text[last.end_pos or 0 : token.start_pos or 0]
        return between.count("\n") > 1


def _blocks(statement: t.Statement) -> Iterator[t.Block]:
    match statement:
        case t.Sequence() | t.For() | t.RankBody():
            yield statement.body
        case t.BuildingBlock() | t.Auto():
            yield t.Block(statement.items.span, ())
        case t.If():
            yield statement.then
            if statement.otherwise:
                yield statement.otherwise


class _Printer:
    """Items to lines."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def lines(self, block: _Block, depth: int) -> list[str]:
        found: list[str] = []
        joinable: _Item | None = None
        for item in block.items:
            if item.blank and found:
                found.append("")
            together = joinable is not None and item.is_operation and item.line == joinable.line and not item.blank
            new = self._item(item, depth)
            if together and len(new) == 1 and len(found[-1]) + 2 + len(new[0].lstrip()) <= WIDTH:
                found[-1] += _INDENT + new[0].lstrip()
            else:
                found += new
            joinable = item if item.is_operation and item.comment is None and len(new) == 1 else None
        return found

    def _item(self, item: _Item, depth: int) -> list[str]:
        margin = _INDENT * depth
        behind = f"  {item.comment}" if item.comment and item.parts else ""
        if not item.parts:
            return [margin + (item.comment or "")]
        flat = self._flat(item)
        if flat is not None and len(margin + flat) <= WIDTH:
            return [margin + flat + behind]
        lines = (
            self._broken(item, depth) if any(isinstance(p, _Block) for p in item.parts) else self._wrapped(item, margin)
        )
        lines[-1] += behind
        return lines

    def _flat(self, item: _Item) -> str | None:
        """The statement on one line; None where a block of it is broken."""
        words = ""
        previous: Token | None = None
        for number, part in enumerate(item.parts):
            if isinstance(part, _Block):
                inner = self._flat_block(part)
                if inner is None:
                    return None
                words += inner
                previous = None
            else:
                words += self._space(previous, part, item.parts[:number]) + _text(part)
                previous = part
        return words

    def _flat_block(self, block: _Block) -> str | None:
        inner = [self._flat(item) for item in block.items]
        if (block.broken and block.items) or any(text is None for text in inner):
            return None
        return f" {{ {'  '.join(filter(None, inner))} }}" if inner else " {}"

    def _broken(self, item: _Item, depth: int) -> list[str]:
        """The statement with its blocks on lines of their own."""
        margin = _INDENT * depth
        lines = [margin]
        previous: Token | None = None
        for number, part in enumerate(item.parts):
            if isinstance(part, _Block):
                if not part.items:
                    lines[-1] += " {}"
                else:
                    lines[-1] += " {"
                    lines += [*self.lines(part, depth + 1), margin + "}"]
                previous = None
            else:
                lines[-1] += self._space(previous, part, item.parts[:number]) + _text(part)
                previous = part
        return lines

    def _wrapped(self, item: _Item, margin: str) -> list[str]:
        """A long run of operations, or a long expression, over several lines."""
        lines, previous = [margin], None
        for number, part in enumerate(item.parts):
            assert isinstance(part, Token)
            space = self._space(previous, part, item.parts[:number])
            for word in _text(part).split(" ") if part.type == "LITERALS" else [_text(part)]:
                if space and len(lines[-1] + space + word) > WIDTH and lines[-1].strip():
                    lines.append(margin + _INDENT * 2 + word)
                else:
                    lines[-1] += space + word
                space = " "
            previous = part
        return lines

    def _space(self, previous: Token | None, token: Token, before: list[Token | _Block]) -> str:
        """What stands between two tokens."""
        if not before:
            return ""
        if previous is None:
            return " "
        if previous.type == "SUM" and _is_sign(before):
            return ""
        if (
            previous.type == "COLON"
            and isinstance(before[0], Token)
            and before[0].type == "RANK"
            and token.type in _RUN
        ):
            return " "
        if previous.type in _TIGHT_AFTER or token.type in _TIGHT_BEFORE:
            return ""
        if token.type == "LPAR" and previous.type == "NAME":
            return ""
        return " "


_RUN = frozenset({"KIND", "LITERALS", "UNDERSCORE"})


def _is_sign(before: list[Token | _Block]) -> bool:
    """Whether the last of these tokens, a ``+`` or ``-``, belongs to one operand."""
    if len(before) < 2:
        return True
    ahead = before[-2]
    return isinstance(ahead, Token) and ahead.type in _OPENS_OPERAND


def _text(token: Token) -> str:
    """A token as it is printed: runs of literal operations with single spaces."""
    return " ".join(str(token).replace("&", " & ").split()) if token.type == "LITERALS" else str(token)
