"""Whatever the text, nothing but findings comes out of parsing, expanding and checking it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from piper_dsl.check import check
from piper_dsl.codes import CODES
from piper_dsl.diagnostics import Diagnostic, PipeError, Source
from piper_dsl.expand import expand
from piper_dsl.library import read_source
from piper_dsl.syntax import parse

TEXTS = [read_source(name).text for name in ("gpipe", "1f1b", "interleaved_1f1b", "zb_h1")]
TEXTS.append("""\
ranks 2 microbatches 2 stages 4 place vee
edge 0 -> 1 edge 1 -> 2 edge 2 -> 3 tie 0, 3
cost F@s = 1 + s cost F & B = 3
seq pair(i) { F[i]@stage(0) & B[i]@stage(1) }
rank 0: 0F0 3F0 3B0 0B0 _ 0OPT
rank r { for i in 0:m { pair(i) } if r { OPT } else { _ } let x = 1 if r else 2 if x { F[x:0:-1]@(r % 2) } }
param m = 2
""")

# fmt: off
WORDS = [
    "schedule", "param", "let", "fn", "seq", "require", "ranks", "microbatches", "stages", "place", "loop", "vee", "on",
    "edge", "->", "tie", "cost", "rank", "for", "in", "if", "else", "and", "or", "not", "F", "B", "I", "W", "R", "OPT",
    "REDUCE_GRAD", "UNSHARD", "RESHARD", "SEND_F", "RECV_B", "0F0", "1B1", "2OPT", "0F0x", "F0", "_", "&", "@", "stage",
    "min", "max", "abs", "(", ")", "{", "}", "[", "]", ":", ",", "=", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*",
    "//", "%", "p", "m", "r", "i", "x", "0", "1", "2", "7", "9" * 20, '"text"', '"', "#", "é", "\n", "\0",
]
# fmt: on


def _survives(text: str, **parameters: int) -> tuple[Diagnostic, ...]:
    """Every finding has a known code, a message, and places within the text."""
    source = Source("t.pipe", text)
    try:
        findings = check(expand(parse(source), parameters, max_ops=20_000))
    except PipeError as error:
        findings = error.diagnostics
        assert findings
    for finding in findings:
        assert finding.code in CODES
        assert finding.message
        for span in (finding.span, *(related.span for related in finding.related)):
            assert span is None or 0 <= span.start <= span.end <= len(text)
    starts = [finding.span.start if finding.span else -1 for finding in findings]
    assert starts == sorted(starts)
    return findings


@given(st.text(max_size=80))
@settings(max_examples=120, deadline=None)
def test_any_text(text: str) -> None:
    _survives(text)


@given(st.lists(st.sampled_from(WORDS), max_size=40))
@settings(max_examples=120, deadline=None)
def test_any_words_of_the_language(words: list[str]) -> None:
    _survives(" ".join(words))


@given(
    st.sampled_from(TEXTS),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.03), st.sampled_from(["", *WORDS])), min_size=1, max_size=3),
)
@settings(max_examples=120, deadline=None)
def test_a_good_text_with_parts_cut_out_and_words_put_in(text: str, cuts: list[tuple[float, float, str]]) -> None:
    for where, length, word in cuts:
        start = int(where * len(text))
        text = f"{text[:start]}{word}{text[start + int(length * len(text)) :]}"
    _survives(text)


@given(st.sampled_from(TEXTS), st.data())
@settings(max_examples=100, deadline=None)
def test_a_good_text_with_tokens_swapped(text: str, data: st.DataObject) -> None:
    tokens = text.split(" ")
    for _ in range(data.draw(st.integers(1, 3))):
        one, two = (data.draw(st.integers(0, len(tokens) - 1)) for _ in range(2))
        tokens[one], tokens[two] = tokens[two], tokens[one]
    _survives(" ".join(tokens))


@given(
    st.sampled_from(TEXTS[:4]),
    st.fixed_dictionaries({"p": st.integers(-3, 12), "m": st.integers(-3, 20)}),
)
@settings(max_examples=50, deadline=None)
def test_any_sizes(text: str, parameters: dict[str, int]) -> None:
    findings = _survives(text, **parameters)
    if min(parameters.values()) < 1:
        assert findings


@pytest.mark.parametrize("value", [-(10**30), -(2**63), -1, 0, 2**31, 2**63, 10**30])
@pytest.mark.parametrize("name", ["p", "m"])
@pytest.mark.parametrize("text", TEXTS[:4], ids=["gpipe", "1f1b", "interleaved_1f1b", "zb_h1"])
def test_extreme_sizes_are_refused(text: str, name: str, value: int) -> None:
    assert _survives(text, **{name: value})


def test_errors_can_be_sent_to_another_process() -> None:
    from pickle import dumps, loads

    with pytest.raises(PipeError) as refused:
        parse(Source("t.pipe", "let = 1 let x ="))
    again = loads(dumps(refused.value))
    assert (again.diagnostics, str(again)) == (refused.value.diagnostics, str(refused.value))
