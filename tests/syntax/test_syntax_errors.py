"""Text that does not parse: one finding a mistake, at its place, and all mistakes in one run."""

from __future__ import annotations

import pytest

OPERATION_HELP = "an operation is written F[i], F[a:b] or, literally, 2F0 (stage 2, microbatch 0)"
SIZES = "ranks 1\nmicrobatches 2\n"


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        # Tokens that look like operations
        ("rank 0: 0F0x 0B0", f"P104 1:9-13 `0F0x` is not an operation => {OPERATION_HELP}"),
        ("rank 1: 1FOO0", f"P104 1:9-14 `1FOO0` is not an operation => {OPERATION_HELP}"),
        ("rank 0: 0F0 0F1x 0B0", f"P104 1:13-17 `0F1x` is not an operation => {OPERATION_HELP}"),
        ("rank 0: 0Q0", f"P104 1:9-12 `0Q0` is not an operation => {OPERATION_HELP}"),
        ("param p = 3abc", f"P104 1:11-15 `3abc` is not an operation => {OPERATION_HELP}"),
        # Words of the language as names
        ("let if = 3", "P101 1:5-7 `if` is a word of the language and cannot be a name => choose another name"),
        ("let F = 3", "P101 1:5-6 `F` is a word of the language and cannot be a name => choose another name"),
        ("fn rank(k) = 3", "P101 1:4-8 `rank` is a word of the language and cannot be a name => choose another name"),
        (
            "param rank = 4",
            "P101 1:7-11 `rank` is a word of the language and cannot be a name => choose another name",
        ),
        (
            "rank r { for in in 0:2 { F[0] } }",
            "P101 1:14-16 `in` is a word of the language and cannot be a name => choose another name",
        ),
        (
            "let x = 2 * cost",
            "P101 1:13-17 `cost` is a word of the language and cannot be a name => expected an expression",
        ),
        ("let B2 = 3", "P101 1:5-7 expected a name, found `B2`"),
        # Texts and characters
        (
            'schedule "abc\nranks 1',
            'P101 1:10-14 a text without its closing quote => close it with `"` on the same line',
        ),
        ('schedule "', 'P101 1:10-11 a text without its closing quote => close it with `"` on the same line'),
        ("rank 0: F0 ? B0", "P101 1:12-13 a character the language does not use: '?'"),
        ("let ä = 1", "P101 1:5-6 a character the language does not use: 'ä'"),
        ("let\tx =\t1 $", "P101 1:11-12 a character the language does not use: '$'"),
        ("ranks 1\r\nlet x = 1 $\r\n", "P101 2:11-12 a character the language does not use: '$'"),
        ("ranks 1 \x00", "P101 1:9-10 a character the language does not use: '\\x00'"),
        ("schedule name", 'P101 1:10-14 expected a text in "quotes", found `name`'),
        # What stands where something else should
        ("let x == 3", "P101 1:7-9 expected `=`, found `==`"),
        ("let x = 0:3", "P101 1:10-11 expected a statement, the end of the file or an operator, found `:`"),
        ("let x = 1 if 2\nranks 1", "P101 2:1-6 expected `else` or an operator, found `ranks`"),
        ("rank r { let x = (1 if r) F[0:2] }", "P101 1:25-26 expected `else` or an operator, found `)`"),
        ("rank r { F[0:1:2:3] }", "P101 1:17-18 expected `]` or an operator, found `:`"),
        ("rank r { F[] }", "P101 1:12-13 expected an expression, found `]`"),
        ("rank r { if x = 3 { } }", "P101 1:15-16 expected `{` or an operator, found `=`"),
        ("rank r { for i 0:2 { F[i] } }", "P101 1:16-17 expected `in`, found `0`"),
        (
            "rank 0: F 0",
            "P101 1:11-12 expected an operation, a statement, `[` or the end of the file, found `0`",
        ),
        ("rank 0: F0 &", "P101 1:13-13 expected a literal operation such as 2F0, found the end of the file"),
        (
            "rank 0: & F0",
            "P101 1:9-10 expected an expression, an operation, a statement or the end of the file, found `&`",
        ),
        ("edge 0 1\nranks 1", "P101 1:8-9 expected `->` or an operator, found `1`"),
        ("tie 0\nranks 1", "P101 2:1-6 expected `,` or an operator, found `ranks`"),
        ("fn f k = 3", "P101 1:6-7 expected `(`, found `k`"),
        ("seq s() F[0]", "P101 1:9-10 expected `{`, found `F`"),
        (
            'require 1 < 2 "x"',
            'P101 1:15-18 expected a statement, `,`, the end of the file or an operator, found `"x"`',
        ),
        ("cost X = 3", "P101 1:6-7 expected a kind of operation (F, B, I, W, …), found `X`"),
        ("cost F 3", "P101 1:8-9 expected `=`, found `3`"),
        ("ranks ]", "P101 1:7-8 expected an expression, found `]`"),
        # What stands at the top and belongs into a body
        ("steady(3)", "P101 1:1-7 expected a statement or the end of the file, found `steady`"),
        ("F[0]", "P101 1:1-2 expected a statement or the end of the file, found `F`"),
        ("for i in 0:2 { }", "P101 1:1-4 expected a statement or the end of the file, found `for`"),
        # Brackets that do not match, at the end of the file
        (
            "rank r { F[0:2]\n\n",
            "P101 1:16-16 expected an operation, `for`, `if`, `let`, `}` or a name, found the end of the file",
        ),
        ("rank 0: F0\n}", "P101 2:1-2 expected an operation, a statement or the end of the file, found `}`"),
        # Limits
        (
            "let x = 1000000000000001",
            "P105 1:9-25 the number is too large; integers stay within ±1,000,000,000,000,000",
        ),
        (
            f"let x = {'9' * 5000}",
            "P105 1:9-5009 the number is too large; integers stay within ±1,000,000,000,000,000",
        ),
        (
            f"let x = {'(' * 101}1{')' * 101}",
            "P102 1:109-110 nested more than 100 deep => give parts of it a name with `let`",
        ),
        (
            f"rank r {{ {'{' * 3}",
            "P101 1:10-11 expected an operation, `for`, `if`, `let`, `}` or a name, found `{`",
        ),
    ],
)
def test_one_mistake_is_one_finding(findings, text: str, finding: str) -> None:
    assert findings(text) == [finding]


def test_the_largest_integer_is_allowed(schedule) -> None:
    text = f"let x = 1000000000000000 let y = -{10**15} {SIZES} rank 0 {{ F[x - x] F[1] B[0:2] }}"
    assert len(schedule(text)) == 4


def test_mistakes_in_several_statements_are_all_found_in_source_order(findings) -> None:
    text = """\
let = 3
param p 4
ranks 2 2
schedule "unclosed
rank 0: F0 )
rank 1: 1F0x
let big = 9999999999999999
cost F = = 3
"""
    assert findings(text) == [
        "P101 1:5-6 expected a name, found `=`",
        "P101 2:9-10 expected `=`, found `4`",
        "P101 3:9-10 expected a statement, the end of the file or an operator, found `2`",
        'P101 4:10-19 a text without its closing quote => close it with `"` on the same line',
        "P101 5:12-13 expected an operation, a statement or the end of the file, found `)`",
        f"P104 6:9-13 `1F0x` is not an operation => {OPERATION_HELP}",
        "P105 7:11-27 the number is too large; integers stay within ±1,000,000,000,000,000",
        "P101 8:10-11 expected an expression, found `=`",
    ]


def test_mistakes_within_one_body_are_all_found(findings) -> None:
    text = """\
rank r {
  let = 1
  for i 0:2 { F[i] }
  if 1 { B[0 }
  let z = 1 + * 2
}
ranks %
"""
    assert findings(text) == [
        "P101 2:7-8 expected a name, found `=`",
        "P101 3:9-10 expected `in`, found `0`",
        "P101 4:14-15 expected `:`, `]` or an operator, found `}`",
        "P101 5:15-16 expected an expression, found `*`",
        "P101 7:7-8 expected an expression, found `%`",
    ]


def test_of_two_names_of_a_placement_none_is_dropped_silently(diagnostics) -> None:
    text = "ranks 2 microbatches 1 stages 4 rank 0: 0F0 3F0 rank 1: 1F0 2F0\nplace loop, vee"
    assert [d.span.line for d in diagnostics(text)] == [2]


def test_a_hundred_findings_are_enough(findings) -> None:
    found = findings("let = 1\n" * 150)
    assert found == [f"P101 {line}:5-6 expected a name, found `=`" for line in range(1, 101)]


@pytest.mark.parametrize(
    "nested",
    [
        f"let x = {'-' * 5000}1",
        f"let x = {'not ' * 5000}1",
        f"let x = {'(' * 5000}1",
        f"let x = {'1 if 1 else ' * 1500}1",
        f"let x = {'abs(' * 5000}1{')' * 5000}",
        f"rank r {{ {'if 0 { } else ' * 2000} {{ }} }}",
        f"rank r {{ {'for i in 0:1 { ' * 5000} }}",
        f"rank r {{ {'if 1 { ' * 5000} }}",
        f"rank r {{ let x = {'1 if 1 else ' * 1500} 1 if 1 {{ }} }}",
    ],
    ids=["minus", "not", "bracket", "conditional", "call", "else-if", "for", "if", "let-if"],
)
def test_what_is_nested_beyond_reason_is_refused_in_words(diagnostics, nested: str) -> None:
    found = diagnostics(f"ranks 1\nmicrobatches 1\n{nested}\n")
    assert [(d.code, d.span.line) for d in found] == [("P102", 3)]
    assert found[0].message == "nested more than 100 deep"
