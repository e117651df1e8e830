"""Operations as PyTorch writes them: whole tokens, runs of them, joined by `&`."""

from __future__ import annotations

import pytest

from piper_dsl.diagnostics import PipeError, Source
from piper_dsl.ir.operations import Kind
from piper_dsl.syntax import parse
from piper_dsl.syntax import tree as t


def _runs(text: str) -> list[t.Literals]:
    (rank,) = parse(Source("t.pipe", f"rank 0: {text}")).statements
    assert isinstance(rank, t.RankBody)
    assert all(isinstance(s, t.Literals) for s in rank.body.statements)
    return list(rank.body.statements)  # type: ignore[arg-type]


def _operations(text: str) -> list[tuple[Kind, int, int, bool]]:
    return [
        (Kind(kind), int(stage), int(microbatch), bool(joined))
        for run in _runs(text)
        for kind, stage, microbatch, joined in zip(run.kinds, run.stages, run.microbatches, run.joined, strict=True)
    ]


@pytest.mark.parametrize(
    ("token", "kind", "stage", "microbatch"),
    [
        ("F0", Kind.F, -1, 0),
        ("2F0", Kind.F, 2, 0),
        ("B12", Kind.B, -1, 12),
        ("2I1", Kind.I, 2, 1),
        ("10W30", Kind.W, 10, 30),
        ("R7", Kind.R, -1, 7),
        ("0SEND_F3", Kind.SEND_F, 0, 3),
        ("RECV_B4", Kind.RECV_B, -1, 4),
        ("1RECV_F0", Kind.RECV_F, 1, 0),
        ("1SEND_B0", Kind.SEND_B, 1, 0),
        ("1UNSHARD", Kind.UNSHARD, 1, -1),
        ("2RESHARD", Kind.RESHARD, 2, -1),
        ("0REDUCE_GRAD", Kind.REDUCE_GRAD, 0, -1),
        ("0OPT", Kind.OPT, 0, -1),
        ("2147483647F2147483647", Kind.F, 2**31 - 1, 2**31 - 1),
    ],
)
def test_one_token(token: str, kind: Kind, stage: int, microbatch: int) -> None:
    assert _operations(token) == [(kind, stage, microbatch, False)]


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("F0 B1", [False, False]),
        ("F0 & B1", [False, True]),
        ("F0&B1", [False, True]),
        ("F0 &\n B1", [False, True]),
        ("F0 &  # both\n B1", [False, True]),
        ("F0  # first\n & B1", [False, True]),
        ("F0 # alone & so\n B1", [False, False]),
        ("F0 & B1 F1 & W1 & I2 B0", [False, True, False, True, True, False]),
    ],
)
def test_ampersands_join_an_operation_to_the_one_before(text: str, joined: list[bool]) -> None:
    assert [operation[3] for operation in _operations(text)] == joined


def test_every_operation_of_a_run_has_its_place() -> None:
    (run,) = _runs("F0 12F3 &\n  2OPT")
    texts = [run.span.source.text[start:end] for start, end in zip(run.starts, run.ends, strict=True)]
    assert texts == ["F0", "12F3", "2OPT"]
    assert run.starts.tolist() == [8, 11, 20]


def test_a_run_may_be_broken_by_comments_and_idle_slots() -> None:
    (rank,) = parse(Source("t.pipe", "rank 0: F0 _ F1 # and\n B0 _ _")).statements
    assert isinstance(rank, t.RankBody)
    kinds = [type(s).__name__ for s in rank.body.statements]
    assert kinds == ["Literals", "Idle", "Literals", "Idle", "Idle"]


def test_a_quarter_million_literals() -> None:
    tokens = [f"0{kind}{i}" for i in range(131_072) for kind in "FB"]
    run = _runs(" ".join(tokens))[0]
    assert len(run.kinds) == 262_144
    assert run.microbatches.tolist() == [i for i in range(131_072) for _ in "FB"]
    assert set(run.kinds[::2]) == {Kind.F}
    assert set(run.kinds[1::2]) == {Kind.B}
    assert run.span.source.text[run.starts[-1] : run.ends[-1]] == "0B131071"


@pytest.mark.parametrize(
    "token",
    ["0F0x", "1FOO0", "0F0_", "F0F0", "0F0F", "0Q0", "0F", "12", "OPT0", "0opt", "1SEND0", "F-1", "0F 0"],
)
def test_a_token_matches_as_a_whole_or_not_at_all(token: str) -> None:
    """Whatever the mistake is called, it stands where the token stands, and nothing is guessed."""
    text = f"rank 0: F0 {token} B0"
    with pytest.raises(PipeError) as refused:
        parse(Source("t.pipe", text))
    (finding,) = refused.value.diagnostics
    assert finding.span is not None
    assert text.index(token) <= finding.span.start < text.index(token) + len(token)


def test_oversized_numbers_of_literals(findings) -> None:
    text = "rank 0: F0 F2147483648 B2147483647 2147483648F0\n F" + "9" * 30
    assert findings(text) == [
        "P105 1:12-23 `F2147483648` has a number of more than 32 bits",
        "P105 1:36-48 `2147483648F0` has a number of more than 32 bits",
        f"P105 2:2-33 `F{'9' * 30}` has a number of more than 32 bits",
    ]
