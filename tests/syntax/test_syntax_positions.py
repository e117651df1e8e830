"""Every node of a tree knows its place: exactly the characters that make it up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import pytest

from piper_dsl.diagnostics import Source
from piper_dsl.syntax import parse
from piper_dsl.syntax import tree as t

EVERYTHING = """\
# a comment
schedule "demo"  # with another one
param p = 4, "ranks"
let k = 1 if p > 2 else -3
fn f(a, b) = min(a, b) % 2
seq s(n) { F[0:n:2]@(n + 1)  _ }
require not p == 3 or p and 1, "why"
ranks p
place s, i on s % p
place vee
edge 0 -> 1
tie 0, 1
cost F & B@0 = 3
rank r { if r { s(r) } else if k { OPT@stage(0) & W[1] } else { } for i in 0:2 { let j = i 0F0 & 1B2 } }
rank 0:4:2: 0OPT
"""

PLACES = [
    ("ScheduleName", 'schedule "demo"'),
    ("Param", 'param p = 4, "ranks"'),
    ("Word", "p"),
    ("Number", "4"),
    ("Let", "let k = 1 if p > 2 else -3"),
    ("Word", "k"),
    ("Conditional", "1 if p > 2 else -3"),
    ("Number", "1"),
    ("Compare", "p > 2"),
    ("Name", "p"),
    ("Number", "2"),
    ("Word", ">"),
    ("Unary", "-3"),
    ("Number", "3"),
    ("Function", "fn f(a, b) = min(a, b) % 2"),
    ("Word", "f"),
    ("Word", "a"),
    ("Word", "b"),
    ("Arithmetic", "min(a, b) % 2"),
    ("Call", "min(a, b)"),
    ("Word", "min"),
    ("Name", "a"),
    ("Name", "b"),
    ("Number", "2"),
    ("Word", "%"),
    ("Sequence", "seq s(n) { F[0:n:2]@(n + 1)  _ }"),
    ("Word", "s"),
    ("Word", "n"),
    ("Block", "{ F[0:n:2]@(n + 1)  _ }"),
    ("Slot", "F[0:n:2]@(n + 1)"),
    ("OperationItem", "F[0:n:2]@(n + 1)"),
    ("Range", "0:n:2"),
    ("Number", "0"),
    ("Name", "n"),
    ("Number", "2"),
    ("Arithmetic", "n + 1"),
    ("Name", "n"),
    ("Number", "1"),
    ("Word", "+"),
    ("Idle", "_"),
    ("Require", 'require not p == 3 or p and 1, "why"'),
    ("Logic", "not p == 3 or p and 1"),
    ("Unary", "not p == 3"),
    ("Compare", "p == 3"),
    ("Name", "p"),
    ("Number", "3"),
    ("Word", "=="),
    ("Logic", "p and 1"),
    ("Name", "p"),
    ("Number", "1"),
    ("Size", "ranks p"),
    ("Name", "p"),
    ("PlaceRule", "place s, i on s % p"),
    ("Word", "s"),
    ("Word", "i"),
    ("Arithmetic", "s % p"),
    ("Name", "s"),
    ("Name", "p"),
    ("Word", "%"),
    ("PlaceNamed", "place vee"),
    ("Word", "vee"),
    ("Edge", "edge 0 -> 1"),
    ("Number", "0"),
    ("Number", "1"),
    ("Tie", "tie 0, 1"),
    ("Number", "0"),
    ("Number", "1"),
    ("CostLine", "cost F & B@0 = 3"),
    ("Number", "0"),
    ("Number", "3"),
    (
        "RankBody",
        "rank r { if r { s(r) } else if k { OPT@stage(0) & W[1] } else { } for i in 0:2 { let j = i 0F0 & 1B2 } }",
    ),
    ("Range", "r"),
    ("Name", "r"),
    (
        "Block",
        "{ if r { s(r) } else if k { OPT@stage(0) & W[1] } else { } for i in 0:2 { let j = i 0F0 & 1B2 } }",
    ),
    ("If", "if r { s(r) } else if k { OPT@stage(0) & W[1] } else { }"),
    ("Name", "r"),
    ("Block", "{ s(r) }"),
    ("SequenceCall", "s(r)"),
    ("Word", "s"),
    ("Name", "r"),
    ("Block", "if k { OPT@stage(0) & W[1] } else { }"),
    ("If", "if k { OPT@stage(0) & W[1] } else { }"),
    ("Name", "k"),
    ("Block", "{ OPT@stage(0) & W[1] }"),
    ("Slot", "OPT@stage(0) & W[1]"),
    ("OperationItem", "OPT@stage(0)"),
    ("Call", "stage(0)"),
    ("Word", "stage"),
    ("Number", "0"),
    ("OperationItem", "W[1]"),
    ("Range", "1"),
    ("Number", "1"),
    ("Block", "{ }"),
    ("For", "for i in 0:2 { let j = i 0F0 & 1B2 }"),
    ("Word", "i"),
    ("Range", "0:2"),
    ("Number", "0"),
    ("Number", "2"),
    ("Block", "{ let j = i 0F0 & 1B2 }"),
    ("Let", "let j = i"),
    ("Word", "j"),
    ("Name", "i"),
    ("Literals", "0F0 & 1B2"),
    ("RankBody", "rank 0:4:2: 0OPT"),
    ("Range", "0:4:2"),
    ("Number", "0"),
    ("Number", "4"),
    ("Number", "2"),
    ("Block", "0OPT"),
    ("Literals", "0OPT"),
]


def _nodes(node: t.Node) -> Iterator[t.Node]:
    yield node
    for child in _children(node):
        yield from _nodes(child)


def _children(node: t.Node) -> Iterator[t.Node]:
    for field in fields(node):
        value = getattr(node, field.name)
        yield from (part for part in (value if isinstance(value, tuple) else (value,)) if isinstance(part, t.Node))


def _statements(text: str) -> tuple[t.Statement, ...]:
    return parse(Source("t.pipe", text)).statements


def test_every_node_spans_its_own_text() -> None:
    nodes = [node for statement in _statements(EVERYTHING) for node in _nodes(statement)]
    assert [(type(node).__name__, node.span.text) for node in nodes] == PLACES


def test_lines_and_columns_count_characters_from_one() -> None:
    second = _statements("let a = 1\n\n   let be = 2")[1]
    assert isinstance(second, t.Let)
    places = [(s.line, s.column, s.end_line, s.end_column) for s in (second.span, second.name.span, second.value.span)]
    assert places == [(3, 4, 3, 14), (3, 8, 3, 10), (3, 13, 3, 14)]
    assert str(second.value.span) == "t.pipe:3:13"


def test_columns_count_one_for_a_wide_character_and_for_a_tab() -> None:
    (let,) = _statements("# ünï→\n\tlet a = 1")
    assert (let.span.line, let.span.column) == (2, 2)
    name, size = _statements('schedule "→→" ranks 3')
    assert (name.span.end_column, size.span.column) == (14, 15)


def test_carriage_returns_belong_to_no_line() -> None:
    _, second = _statements("ranks 1\r\n  stages 2\r\n")
    assert (second.span.line, second.span.column, second.span.end_column) == (2, 3, 11)
    assert second.span.source.line(1) == "ranks 1"


@pytest.mark.parametrize(
    ("body", "let", "if_"),
    [
        ("let x = r if r { }", "let x = r", "if r { }"),
        ("let x = r\n\n  if r { } else { }", "let x = r", "if r { } else { }"),
        ("let x = (r) if (r) { }", "let x = (r)", "if (r) { }"),
        ("let x = 1 if r else (2) if 3 { }", "let x = 1 if r else (2)", "if 3 { }"),
        ("let x = r # if so\n if r { }", "let x = r", "if r { }"),
        ("let x = r if # what if\n r { }", "let x = r", "if # what if\n r { }"),
    ],
)
def test_a_let_and_the_if_behind_it_have_their_own_places(body: str, let: str, if_: str) -> None:
    (rank,) = _statements(f"rank r {{ {body} }}")
    assert isinstance(rank, t.RankBody)
    assert [statement.span.text for statement in rank.body.statements] == [let, if_]


@pytest.mark.parametrize("text", [EVERYTHING, "ranks 2\nmicrobatches 1\nrank 0:\nrank 1: 1F0\n", "rank r {\n\n}"])
def test_every_part_lies_within_the_whole(text: str) -> None:
    for statement in _statements(text):
        for node in _nodes(statement):
            for child in _children(node):
                assert node.span.start <= child.span.start <= child.span.end <= node.span.end, child
