"""What parses, and what it parses to."""

from __future__ import annotations

import pytest

from piper_dsl.diagnostics import Source
from piper_dsl.syntax import parse
from piper_dsl.syntax import tree as t


def _sketch(node: object) -> object:
    """An expression as nested lists, brackets where the tree has them."""
    match node:
        case t.Number(value=value):
            return value
        case t.Name(text=text):
            return text
        case t.Unary():
            return [node.operator, _sketch(node.operand)]
        case t.Arithmetic() | t.Compare():
            parts = [_sketch(node.operands[0])]
            for operator, operand in zip(node.operators, node.operands[1:], strict=True):
                parts += [operator.text, _sketch(operand)]
            return parts
        case t.Logic():
            return [node.operator, *map(_sketch, node.operands)]
        case t.Conditional():
            return [_sketch(node.then), "if", _sketch(node.condition), "else", _sketch(node.otherwise)]
        case t.Call():
            return [f"{node.function.text}()", *map(_sketch, node.arguments)]
    raise AssertionError(node)


@pytest.mark.parametrize(
    ("text", "sketch"),
    [
        ("1 + 2 * 3", [1, "+", [2, "*", 3]]),
        ("(1 + 2) * 3", [[1, "+", 2], "*", 3]),
        ("1 - 2 - 3", [1, "-", 2, "-", 3]),
        ("8 // 2 % 3 * 2", [8, "//", 2, "%", 3, "*", 2]),
        ("-a * b", [["-", "a"], "*", "b"]),
        ("- - a", ["-", ["-", "a"]]),
        ("1 - -1", [1, "-", ["-", 1]]),
        ("0 <= i < m", [0, "<=", "i", "<", "m"]),
        ("a == b != c", ["a", "==", "b", "!=", "c"]),
        ("not a == b", ["not", ["a", "==", "b"]]),
        ("not not a", ["not", ["not", "a"]]),
        ("a or b and not c", ["or", "a", ["and", "b", ["not", "c"]]]),
        ("a and b and c", ["and", "a", "b", "c"]),
        ("1 if a else 2 if b else 3", [1, "if", "a", "else", [2, "if", "b", "else", 3]]),
        ("(1 if a else 2) if b else 3", [[1, "if", "a", "else", 2], "if", "b", "else", 3]),
        ("1 if (2 if a else 3) else 4", [1, "if", [2, "if", "a", "else", 3], "else", 4]),
        ("1 if a or b else c + 1", [1, "if", ["or", "a", "b"], "else", ["c", "+", 1]]),
        ("min(a, 1 + 2, f())", ["min()", "a", [1, "+", 2], ["f()"]]),
    ],
)
def test_expressions_bind_as_in_python(text: str, sketch: object) -> None:
    (let,) = parse(Source("t.pipe", f"let x = {text}")).statements
    assert isinstance(let, t.Let)
    assert _sketch(let.value) == sketch


def _body(text: str) -> list[str]:
    """The statements of a body, `if` with what it holds."""
    (rank,) = parse(Source("t.pipe", f"rank r {{ {text} }}")).statements
    assert isinstance(rank, t.RankBody)
    return [_shape(s) for s in rank.body.statements]


def _shape(statement: t.Statement) -> str:
    match statement:
        case t.Let():
            return f"let {_sketch(statement.value)}"
        case t.If():
            then = " ".join(map(_shape, statement.then.statements))
            if statement.otherwise is None:
                return f"if {_sketch(statement.condition)} {{{then}}}"
            otherwise = " ".join(map(_shape, statement.otherwise.statements))
            return f"if {_sketch(statement.condition)} {{{then}}} else {{{otherwise}}}"
        case _:
            return statement.span.text


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("let x = a if b { F0 }", ["let a", "if b {F0}"]),
        ("let x = a if b else c", ["let ['a', 'if', 'b', 'else', 'c']"]),
        ("let x = a if b else c if d { F0 }", ["let ['a', 'if', 'b', 'else', 'c']", "if d {F0}"]),
        (
            "let x = a if b else c if d else e if f { F0 } else { F1 }",
            ["let ['a', 'if', 'b', 'else', ['c', 'if', 'd', 'else', 'e']]", "if f {F0} else {F1}"],
        ),
        ("let x = a if b { F0 } else if c { F1 }", ["let a", "if b {F0} else {if c {F1}}"]),
        ("let x = a if b { let y = c if d { F0 } }", ["let a", "if b {let c if d {F0}}"]),
        ("let x = a if b { } if c { F0 }", ["let a", "if b {}", "if c {F0}"]),
        ("let x = a if b { } let y = c if d { }", ["let a", "if b {}", "let c", "if d {}"]),
        ("let x = a let y = b if c { }", ["let a", "let b", "if c {}"]),
        ("let x = (a if b else c) if d { F0 }", ["let ['a', 'if', 'b', 'else', 'c']", "if d {F0}"]),
        ("let x = a s(1) if b { F0 }", ["let a", "s(1)", "if b {F0}"]),
        ("let x = a F[0] if b { }", ["let a", "F[0]", "if b {}"]),
        ("F[a if b else c] if d { }", ["F[a if b else c]", "if d {}"]),
        ("if a { } else { } F0 F1", ["if a {} else {}", "F0 F1"]),
        ("OPT@s s(1)", ["OPT@s", "s(1)"]),
        ("for i in 0:a { F[i] } B[0] _", ["for i in 0:a { F[i] }", "B[0]", "_"]),
        ("F[0] & B[1]@2 & W[0] OPT", ["F[0] & B[1]@2 & W[0]", "OPT"]),
    ],
)
def test_bodies_fall_apart_into_the_right_statements(text: str, shapes: list[str]) -> None:
    assert _body(text) == shapes


@pytest.mark.parametrize("text", ["", "\n", "   \t\r\n", "# only a comment", "# a\n# b"])
def test_a_file_without_statements_parses(text: str) -> None:
    assert parse(Source("t.pipe", text)).statements == ()


def test_layout_and_comments_carry_no_meaning(schedule) -> None:
    text = "ranks 2 microbatches 1 rank r { F[0:1] if r { B[0] } else { B[0] } OPT }"
    spread = text.replace(" ", '\n  # a comment with { braces } and "quotes\n\t')
    assert [schedule(spread).row(r) for r in (0, 1)] == [schedule(text).row(r) for r in (0, 1)]


def test_names_may_begin_like_keywords_and_kinds() -> None:
    names = [
        "ranks_",
        "iffy",
        "format",
        "into",
        "onto",
        "notes",
        "order",
        "android",
        "Fx",
        "F_0",
        "OPTIMAL",
        "_x",
        "R_",
    ]
    statements = parse(Source("t.pipe", "\n".join(f"let {name} = 1" for name in names))).statements
    assert [s.name.text for s in statements if isinstance(s, t.Let)] == names


def test_texts_may_hold_what_is_special_elsewhere() -> None:
    name, size = parse(Source("t.pipe", 'schedule "1F1B # {→} rank 0: F0x" ranks 1')).statements
    assert isinstance(name, t.ScheduleName)
    assert name.name == "1F1B # {→} rank 0: F0x"
    assert isinstance(size, t.Size)


def test_depth_that_is_allowed(schedule) -> None:
    brackets = f"let x = {'(' * 100}1{')' * 100}"
    nested = "if 1 { " * 98 + "F[0:2] B[0:2]" + " }" * 98
    assert len(schedule(f"ranks 1 microbatches 2 {brackets} rank r {{ {nested} }}")) == 4


def test_many_conditionals_side_by_side_are_not_nested(schedule) -> None:
    body = " ".join(f"F[{i} if r == 0 else {i}]" for i in range(120))
    assert len(schedule(f"ranks 1 microbatches 120 rank r {{ {body} }}")) == 120
