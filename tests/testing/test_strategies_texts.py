"""Random texts against parser, expander and formatter."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from dataclasses import fields
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from lark import Lark

import piper_dsl
from piper_dsl.diagnostics import Diagnostic, PipeError, Source
from piper_dsl.expand import expand
from piper_dsl.library import library_names, read_source
from piper_dsl.syntax import parse
from piper_dsl.syntax import tree as t
from piper_dsl.syntax.formatter import format_source
from piper_dsl.testing import broken_text, source_text

ROOT = Path(__file__).parents[2]
QUICK = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# --- round trip ------------------------------------------------------------------------------


def plain(value: object) -> object:
    """A tree without its places, as nested tuples that compare by value."""
    if isinstance(value, t.Literals):
        columns = (value.kinds, value.stages, value.microbatches, value.joined)
        return ("Literals", *(tuple(column.tolist()) for column in columns))
    if isinstance(value, t.Node):
        inner = ((f.name, plain(getattr(value, f.name))) for f in fields(value) if f.name != "span")
        return (type(value).__name__, *inner)
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def tree(text: str) -> object:
    return plain(parse(Source("t.pipe", text)).statements)


def formatted(text: str) -> str:
    return format_source(Source("t.pipe", text))


def comments(text: str) -> Counter[str]:
    """All comments without the blanks at their ends; a `#` in a string starts none."""
    return Counter(part.rstrip() for part in re.findall(r'"[^"\n]*"|#[^\n]*', text) if part.startswith("#"))


def test_the_comparison_of_trees_sees_what_differs() -> None:
    assert tree("rank 0: 0F0 0B0 # x") == tree("rank 0 :\n 0F0\n0B0")
    different = ["0F0 & 0B0", "0F0 0B1", "0F0 1B0", "0F0 0I0", "F0 0B0", "0F0", "F[0]@0 0B0", "0F0 _ 0B0"]
    trees = [tree(f"rank 0: {row}") for row in ["0F0 0B0", *different]]
    assert len({*map(str, trees)}) == len(trees)
    assert tree("let x = 1 + 2 * 3") != tree("let x = (1 + 2) * 3")
    assert tree("let x = 1 + 2 + 3") != tree("let x = 1 + 2 - 3")


@QUICK
@given(source_text())
def test_source_text_parses_and_keeps_its_tree_through_the_formatter(text: str) -> None:
    assert tree(formatted(text)) == tree(text)


@QUICK
@given(source_text())
def test_the_formatter_keeps_every_comment(text: str) -> None:
    assert comments(formatted(text)) == comments(text)


@QUICK
@given(source_text())
def test_the_formatter_is_idempotent(text: str) -> None:
    once = formatted(text)
    assert formatted(once) == once


@pytest.mark.parametrize("name", library_names())
def test_the_library_round_trips(name: str) -> None:
    text = read_source(name).text
    once = formatted(text)
    assert (tree(once), comments(once), formatted(once)) == (tree(text), comments(text), once)


def test_source_text_uses_every_rule_of_the_grammar() -> None:
    grammar = files("piper_dsl.grammar").joinpath("pipe.lark").read_text(encoding="utf-8")
    lark = Lark(grammar, parser="lalr", lexer="basic", maybe_placeholders=True)
    # Without the three that no valid file holds.
    terminals = {terminal.name for terminal in lark.terminals} - {"MALFORMED", "BAD_STRING", "UNKNOWN"}
    rules = {str(rule.origin.name) for rule in lark.rules if not rule.origin.name.startswith("_")}
    seen: set[str] = {"WS", "COMMENT"}

    @settings(max_examples=1500, deadline=None, derandomize=True, database=None)
    @given(source_text())
    def collect(text: str) -> None:
        seen.update(token.type for token in lark.lex(text))
        seen.update(str(node.data) for node in lark.parse(text).iter_subtrees())
        if comments(text):
            seen.add("a comment")

    collect()
    wanted = rules | {name for name in terminals if not name.startswith("__IGNORE")} | {"a comment"}
    assert wanted <= seen, wanted - seen


# --- broken texts ----------------------------------------------------------------------------


def findings(text: str) -> tuple[Diagnostic, ...]:
    try:
        expand(parse(Source("t.pipe", text)), max_ops=5000)
    except PipeError as error:
        return error.diagnostics
    return ()


@settings(QUICK, max_examples=200)
@given(broken_text())
def test_whatever_is_read_nothing_but_findings_comes_out(text: str) -> None:
    for finding in findings(text):
        assert finding.span is None or 0 <= finding.span.start <= finding.span.end <= len(text)
        assert str(finding)


@settings(QUICK, max_examples=80)
@given(broken_text())
def test_the_formatter_refuses_exactly_what_does_not_parse(text: str) -> None:
    try:
        before = tree(text)
    except PipeError:
        with pytest.raises(PipeError):
            formatted(text)
    else:
        assert tree(formatted(text)) == before


def test_broken_text_reaches_every_floor() -> None:
    seen: set[str] = set()

    @settings(max_examples=1000, deadline=None, derandomize=True, database=None)
    @given(broken_text())
    def collect(text: str) -> None:
        seen.update({finding.code for finding in findings(text)} or {"fine"})

    collect()
    # Syntax, nesting, unknown names, sizes; and files that stay fine.
    assert seen >= {"fine", "P101", "P102", "P201", "P211"}, seen


# --- found by the strategies above ------------------------------------------------------------


@pytest.mark.parametrize("text", ["let x = 1 if 2 else 3)", "ranks 1 if 2 else 3 ]", "place s on s if 1 else 2 }"])
def test_a_stray_bracket_behind_a_conditional_is_a_finding(text: str) -> None:
    assert [finding.code for finding in findings(text)] == ["P101"]


def test_an_operation_behind_a_wrapped_one_stays_where_it_is_put() -> None:
    once = formatted(f"rank 0 {{ F[{' + '.join(['1'] * 30)}]  F0 }}")
    assert formatted(once) == once


def test_an_if_behind_a_let_may_have_a_conditional_as_condition() -> None:
    assert tree("rank r { let x = 1  if 1 if r else 0 { F0 } }") == tree(
        "rank r { let x = 1  if (1 if r else 0) { F0 } }"
    )


# --- the package -----------------------------------------------------------------------------


def test_only_this_package_needs_hypothesis() -> None:
    code = "import piper_dsl.cli.main, sys; assert 'hypothesis' not in sys.modules; import piper_dsl.testing"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    package = Path(piper_dsl.__file__).parent
    importing = [
        path for path in package.rglob("*.py") if re.search(r"^\s*(from|import) hypothesis", path.read_text(), re.M)
    ]
    assert {path.parent.name for path in importing} == {"testing"}


def test_it_is_installed() -> None:
    assert "piper_dsl.testing" in (ROOT / "setup.cfg").read_text().split()
