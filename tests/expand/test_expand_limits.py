"""Expansions that would never end or never fit stop with a finding."""

from __future__ import annotations

import pytest

SIZES = "ranks 2\nmicrobatches 2\n"


@pytest.mark.parametrize(
    ("body", "column"),
    [
        ("for i in 0:1000000000 { F[0] }", 19),
        ("for i in 0:1000000000 { }", 19),
        ("for i in 0:1000000000000000:-1 { } for i in 1000000000000000:0:-1 { F[0] }", 54),
        ("F[0:1000000000000]", 12),
        ("for i in 0:10000 { for j in 0:10000 { F[0] } }", 38),
        # 10 000 × 10^15 is beyond 64 bits
        ("for i in 0:10000 { for j in 0:1000000000000000 { F[0] } }", 38),
    ],
)
def test_too_many_operations(diagnostics, body: str, column: int) -> None:
    found = diagnostics(f"{SIZES}rank 0 {{ {body} }}\nrank r {{ F[0] }}")
    assert [(d.code, d.message) for d in found] == [("P208", "the schedule grows beyond 10,000,000 operations here")]
    assert (found[0].span.line, found[0].span.column) == (3, column)
    assert found[0].help == "raise the limit with `--max-ops`"


def test_the_limit_is_the_callers(schedule, findings) -> None:
    text = SIZES + "rank r { F[0:2] B[0:2] }"
    assert len(schedule(text, max_ops=8)) == 8
    assert findings(text, max_ops=7) == [
        "P208 1:1-1 the schedule has 8 operations, more than the limit of 7 => raise the limit with `--max-ops`"
    ]


@pytest.mark.parametrize("sizes", ["ranks 100000\nmicrobatches 100000", "ranks 1\nmicrobatches 1\nstages 100000000"])
def test_sizes_beyond_the_limit(diagnostics, sizes: str) -> None:
    assert [(d.code, d.span.line) for d in diagnostics(f"{sizes}\nrank r {{ }}")] == [("P208", 1)]


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a million steps takes half a minute to reach."""
    monkeypatch.setattr("piper_dsl.expand.evaluate.MAX_STEPS", 20_000)


@pytest.mark.usefixtures("few_steps")
def test_functions_that_call_one_another_twice_do_not_run_for_ever(diagnostics) -> None:
    doubling = "\n".join(f"fn f{i}(x) = f{i - 1}(x) + f{i - 1}(x)" for i in range(1, 60))
    found = diagnostics(f"fn f0(x) = x\n{doubling}\nlet y = f59(1)\n{SIZES}rank r {{ F[0:2] B[0:2] }}")
    assert [d.code for d in found] == ["P208"]


@pytest.mark.usefixtures("few_steps")
def test_sequences_that_call_one_another_twice_do_not_run_for_ever(diagnostics) -> None:
    doubling = "\n".join(f"seq s{i}() {{ s{i - 1}() s{i - 1}() }}" for i in range(1, 60))
    found = diagnostics(f"seq s0() {{ F[0] }}\n{doubling}\n{SIZES}rank r {{ s59() }}")
    assert [d.code for d in found] == ["P208"]


@pytest.mark.parametrize("kind", ["fn", "seq"])
def test_a_long_chain_of_definitions_expands_or_is_refused(diagnostics, kind: str) -> None:
    """500 definitions, each calling the one before: no recursion of ours may overflow."""
    if kind == "fn":
        chain = "fn f0(x) = x\n" + "\n".join(f"fn f{i}(x) = f{i - 1}(x)" for i in range(1, 500))
        body = "F[f499(0)] F[1] B[0:2]"
    else:
        chain = "seq f0(x) { F[x:2] }\n" + "\n".join(f"seq f{i}(x) {{ f{i - 1}(x) }}" for i in range(1, 500))
        body = "f499(0) B[0:2]"
    codes = {d.code for d in diagnostics(f"{chain}\n{SIZES}rank r {{ {body} }}")}
    assert codes <= {"P102", "P208"}
