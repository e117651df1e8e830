"""Building blocks: what they say wrong, and what moving ahead must never do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import piper_dsl as piper
from piper_dsl.expand import expand
from piper_dsl.syntax import parse

SIZES = "ranks 2\nmicrobatches 4\n"


def schedule(text: str) -> piper.Schedule:
    return expand(parse(piper.Source("t.pipe", text)))


def findings(text: str) -> list[tuple[str, str, int]]:
    with pytest.raises(piper.PipeError) as error:
        schedule(text)
    return [(d.code, d.message, d.span.line) for d in error.value.diagnostics if d.span]


@pytest.mark.parametrize(
    ("block", "message", "line"),
    [
        (
            "block 2 { F@s at s\nB@s at 4 - 2 * s }",
            "a period of 2 slots is too short for a rank with 1 stages of 3 slots each",
            3,
        ),
        (
            "block 3 { F@s at 1 - s\nB@s at 4 - 2 * s }",
            "F of stage 1 stands in slot 0, but F of stage 0, which it needs, ends in slot 2",
            3,
        ),
        (
            "block 3 { F@s at s\nB@s at 6 - 3 * s }",
            "B of stage 0 and F of stage 0 meet on rank 0: both take slot 0 of a period of 3",
            4,
        ),
        ("block 3 { F@s at s - 1\nB@s at 4 - 2 * s }", "F of stage 0 stands in slot -1; slots count from 0", 3),
        ("block 3 { F@s at s }", "a block needs F and B, or F, I and W", 3),
        ("block 3 { F@s at s\nF@s at s\nB@s at 4 - 2 * s }", "F has two lines", 4),
        ("block 3 { F@s\nB@s at 4 - 2 * s }", "F cannot be written like this in a block", 3),
        ("block 3 { F@s at s\nI@s at 4 - 2 * s\nW@s at 9 }", "W cannot be written like this in a block", 5),
        ("block 3 { F@s at s\nB@s at 4 - 2 * s\nR }", "R cannot be written like this in a block", 5),
        ("block 3 { F@s at s\nB@s at 4 - 2 * s\nOPT@s }", "OPT cannot be written like this in a block", 5),
    ],
)
def test_a_block_that_does_not_fit(block: str, message: str, line: int) -> None:
    assert findings(SIZES + block)[0] == ("P219", message, line)


def test_values_of_a_block_are_evaluated_like_others() -> None:
    assert findings(SIZES + "block 3 { F@s at 1 // s\nB@s at 4 }") == [("P203", "division by zero for s = 0", 3)]


def test_a_file_has_one_block_and_then_no_bodies() -> None:
    block = "block 3 { F@s at s  B@s at 4 - 2 * s }\n"
    found = findings(SIZES + block + block + "rank r { F[0:4] }\n")
    assert found == [("P202", "a block makes all bodies; this one is left over", line) for line in (4, 5)]


def test_every_operation_knows_its_line_and_its_stage_and_microbatch() -> None:
    made = schedule(SIZES + "block 3 {\n  F@s at s\n  B@s at 4 - 2 * s\n  OPT\n}\n")
    index = [str(operation) for operation in made.row(0)].index("0B2")
    assert made.origin.span(index).line == 5
    assert made.origin.bindings(index) == {"s": 0, "i": 2}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_what_a_block_gives_is_complete_and_holds_no_more_than_the_repetition(data: st.DataObject) -> None:
    """Random slots that fit: the order checks, and a long run holds as much as a longer one."""
    ranks, split = data.draw(st.integers(1, 4)), data.draw(st.booleans())
    period = data.draw(st.integers(3, 7))
    last = "I" if split else "B"
    length = 1 if split else 2
    forward, backward = [0] * ranks, [0] * ranks
    taken: list[set[int]] = [set() for _ in range(ranks)]
    now = 0
    for s in range(ranks):
        now += data.draw(st.integers(0, 3))
        forward[s], now = now, now + 1
        taken[s].add(forward[s] % period)
    for s in reversed(range(ranks)):
        now += data.draw(st.integers(0, 3))
        while {(now + d) % period for d in range(length)} & taken[s]:
            now += 1
        backward[s], now = now, now + length

    def choice(slots: list[int]) -> str:
        text = str(slots[-1])
        for s, slot in reversed(list(enumerate(slots[:-1]))):
            text = f"({slot} if s == {s} else {text})"
        return text

    def made(microbatches: int) -> piper.Schedule:
        lines = [f"F@s at {choice(forward)}", f"{last}@s at {choice(backward)}", *(["W@s"] if split else []), "OPT"]
        body = "  ".join(lines)
        return schedule(f"ranks {ranks}\nmicrobatches {microbatches}\nblock {period} {{ {body} }}\n")

    peaks = []
    for microbatches in (1, 3, 30, 36):
        found = made(microbatches)
        assert piper.check(found) == ()
        peaks.append(piper.simulate(found).peak_activations)
    assert peaks[2] == peaks[3]
