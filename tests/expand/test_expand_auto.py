"""Rules: the published figures in a few lines, ties, what they see, and what they say wrong."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import piper_dsl as piper
from piper_dsl import Costs
from piper_dsl.expand import expand
from piper_dsl.interop.pipe_text import to_pipe
from piper_dsl.library import read_source
from piper_dsl.syntax import parse

SIZES = "ranks 2\nmicrobatches 4\n"
VEE = "stages 2 * p\nplace vee\n"
RULES = {
    "gpipe": "auto { F[i]@s  B[i]@s  OPT }",
    "1f1b": "auto r { B[i]@s  F[i]@s when held < p - r  OPT }",
    "zb_h1": "auto r { F[i]@s when in_flight < p - r and held < p  I[i]@s  W[i]@s  OPT }",
    "zb_v": VEE + "auto { F[i]@s when held < 2 * p  W[i]@s when held >= 2 * p  I[i]@s  W[i]@s  OPT }",
}


def schedule(text: str, **parameters: int) -> piper.Schedule:
    return expand(parse(piper.Source("t.pipe", text)), parameters)


def sized(rule: str, p: int, m: int) -> piper.Schedule:
    made = schedule(f"param p = {p}\nparam m = {m}\nranks p\nmicrobatches m\n{rule}\n")
    assert piper.check(made) == ()
    return made


def findings(text: str) -> list[tuple[str, str, int]]:
    with pytest.raises(piper.PipeError) as error:
        schedule(text)
    return [(d.code, d.message, d.span.line) for d in error.value.diagnostics if d.span]


# --- published figures -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "makespan", "span_idle", "peak", "comm1"),
    [
        ("gpipe", 33, [9, 6, 3, 0], [8, 8, 8, 8], 39),
        ("1f1b", 33, [9, 6, 3, 0], [4, 3, 2, 1], 49),
        ("zb_h1", 27, [3, 2, 1, 0], [4, 4, 4, 4], 41),
        ("zb_v", 51, [0, 0, 0, 0], [8, 8, 8, 8], 65),
    ],
)
def test_a_rule_reaches_the_published_figures(
    name: str, makespan: float, span_idle: list[float], peak: list[int], comm1: float
) -> None:
    made = sized(RULES[name], 4, 8)
    timeline = piper.simulate(made)
    assert timeline.makespan == makespan
    assert [rank.span_idle for rank in timeline.ranks] == span_idle
    assert list(timeline.peak_activations) == peak
    assert piper.simulate(made, Costs(latency=1)).makespan == comm1


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 3), (3, 7), (5, 12), (8, 20)])
def test_a_rule_is_as_good_as_the_schedule_of_the_library(name: str, p: int, m: int) -> None:
    mine, known = piper.simulate(sized(RULES[name], p, m)), piper.simulate(piper.load(name, p=p, m=m))
    assert mine.makespan == known.makespan
    assert max(mine.peak_activations) <= max(known.peak_activations)


@pytest.mark.parametrize("name", ["v_half", "v_min"])
def test_v_half_and_v_min_are_blocks_of_at_most_ten_lines(name: str) -> None:
    lines = read_source(name).text.splitlines()
    rule = [line for line in lines[lines.index("place vee") + 1 :] if line]
    assert any(line.startswith("block") for line in rule)
    assert len(rule) <= 10


# --- what a rule means -----------------------------------------------------------------------


def row(text: str, rank: int = 0) -> str:
    return " ".join(str(operation) for operation in schedule(text).row(rank))


def test_the_least_priority_goes_first_then_the_line_then_the_microbatch_then_the_later_stage() -> None:
    sizes = "ranks 1\nmicrobatches 2\nstages 2\n"
    assert row(sizes + "auto { F[i]@s priority s  B[i]@s priority 9 }").startswith("0F0 0F1 1F0 1F1")
    assert row(sizes + "auto { F[i]@s priority i  B[i]@s priority 9 }") == "0F0 1F0 0F1 1F1 1B0 0B0 1B1 0B1"
    assert row(sizes + "auto { B[i]@s  F[i]@s }") == "0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1"
    assert row(sizes + "auto { F[i]@s  B[i]@s }") == "0F0 1F0 0F1 1F1 1B0 0B0 1B1 0B1"


def test_the_first_line_of_a_kind_whose_condition_holds_counts() -> None:
    rule = "auto { F[i]@s when i < 1  W[i]@s when held > 1  I[i]@s  F[i]@s  W[i]@s }"
    assert row("ranks 1\nmicrobatches 3\n" + rule) == "0F0 0I0 0F1 0W0 0I1 0F2 0W1 0I2 0W2"


def test_declared_costs_decide_what_is_ready() -> None:
    """A W of 1 fits into the hole before I comes back only where that takes longer."""
    rule = "auto { I[i]@s  F[i]@s when in_flight < 2 - s  W[i]@s when idle_until - now >= 2  W[i]@s when held > 1 }"
    slow, quick = (f"{SIZES}cost I@1 = {cost}\n{rule}" for cost in (3, 1))
    assert row(slow) != row(quick)


def test_time_and_readiness_are_seen() -> None:
    assert row("ranks 1\nmicrobatches 3\nauto { B[i]@s when now >= 2  F[i]@s }") == "0F0 0F1 0B0 0B1 0F2 0B2"
    for least, order in ((2, "0F0 0B0 0F1 0B1"), (3, "0F0 0F1 0B0 0B1")):
        assert row(f"ranks 1\nmicrobatches 2\nauto {{ B[i]@s when ready >= {least}  F[i]@s  B[i]@s }}") == order


def test_copies_of_a_stage_are_ordered_on_the_ranks_they_live_on() -> None:
    text = f"{SIZES}place s, i on s if i % 2 == 0 else 1 - s\nauto {{ B[i]@s  F[i]@s when held < 2  OPT }}"
    assert piper.check(schedule(text)) == ()


def test_a_stage_graph_that_joins_is_followed() -> None:
    text = "ranks 3\nmicrobatches 3\nedge 0 -> 2\nedge 1 -> 2\nauto { B[i]@s  F[i]@s when held < 2  OPT }"
    assert piper.check(schedule(text)) == ()


def test_forwards_alone_may_be_ordered() -> None:
    assert row("ranks 1\nmicrobatches 2\nauto { F[i]@s }") == "0F0 0F1"


def test_every_operation_knows_its_line_and_its_stage_and_microbatch() -> None:
    made = schedule(f"{SIZES}auto {{\n  F[i]@s\n  B[i]@s\n  OPT\n}}\n")
    index = [str(operation) for operation in made.row(0)].index("0B2")
    assert made.origin.span(index).line == 5
    assert made.origin.bindings(index) == {"s": 0, "i": 2}


@pytest.mark.parametrize("name", RULES)
def test_it_is_printed_as_plain_operations_that_mean_the_same(name: str) -> None:
    made = sized(RULES[name], 3, 7)
    again = schedule(to_pipe(made))
    assert [again.row(rank) for rank in range(3)] == [made.row(rank) for rank in range(3)]


# --- what is wrong with a rule ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "code", "message", "line"),
    [
        ("auto { F[i]@s }\nauto { F[i]@s }", "P202", "an auto makes all bodies; this one is left over", 4),
        ("auto { F[i]@s }\nrank r { F[0:4] }", "P202", "an auto makes all bodies; this one is left over", 4),
        ("let held = 3\nauto { F[i]@s }", "P202", "`held` has a meaning of its own in the rule of this file", 3),
        ("auto r { F[r]@s }", "P202", "`r` is defined twice", 3),
        ("auto { F[i]@s when k }", "P201", "unknown name `k`", 3),
        ("fn f(k) = k\nauto { F[i]@s priority f }", "P205", "`f` is a function", 4),
        ("seq f(k) { }\nauto { F[i]@s priority f }", "P205", "`f` is a sequence and has no value", 4),
        ("auto { F[i]@s priority 1 // i }", "P203", "division by zero for i = 0", 3),
        ("auto { F[i]@s priority 1 // s }", "P203", "division by zero for s = 0", 3),
        ("auto { F[i]@s priority 1 // held }", "P203", "division by zero for held = 0", 3),
        ("auto { F  B[i]@s }", "P220", "F cannot be written like this in a rule", 3),
        ("auto { F[i]@s  OPT[i]@s }", "P220", "OPT cannot be written like this in a rule", 3),
        ("auto { F[i]@s  OPT when held }", "P220", "OPT cannot be written like this in a rule", 3),
        ("auto { F[i]@s  SEND_F }", "P220", "SEND_F cannot be written like this in a rule", 3),
        ("auto { F[i]@s\nOPT\nOPT }", "P220", "OPT has two lines", 5),
        ("auto { F[i]@s  R[i]@s  B[i]@s }", "P220", "a rule needs F, F and B, or F, I and W", 3),
        ("auto { }", "P220", "a rule needs F, F and B, or F, I and W", 3),
        ("auto { F[i]@s\nB[i]@s when held > 9 }", "P221", "the rule stops at time 5: rank 1 may not start 1B0", 4),
        ("auto { F[i]@s when s < 1\nB[i]@s }", "P221", "the rule stops at time 4: rank 1 may not start 1F0", 3),
    ],
)
def test_a_rule_that_does_not_fit(rule: str, code: str, message: str, line: int) -> None:
    assert findings(SIZES + rule)[0] == (code, message, line)


def test_a_rule_that_stops_says_what_was_held_and_who_else_waits() -> None:
    with pytest.raises(piper.PipeError) as error:
        schedule(SIZES + "auto { F[i]@s when held < 1 - s  B[i]@s }")
    (finding,) = error.value.diagnostics
    assert finding.help == (
        "there held = 0, in_flight = 0, ready = 1, and nothing runs; 15 operations are left; rank 0 may not start 0F1"
    )


def test_a_rule_that_calls_itself_in_a_fan_ends() -> None:
    fan = "\n".join(f"fn f{k + 1}(x) = f{k}(x) + f{k}(x)" for k in range(40))
    text = f"{SIZES}fn f0(x) = x\n{fan}\nauto {{ F[i]@s when f40(held) < 1 }}"
    assert findings(text)[0][0] == "P208"


# --- laws ------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_rule_that_lets_everything_run_gives_a_complete_schedule_within_its_limit(data: st.DataObject) -> None:
    ranks, stages, microbatches = (data.draw(st.integers(1, high)) for high in (4, 6, 6))
    limit = data.draw(st.integers(stages, 2 * stages))
    place = data.draw(st.sampled_from(["place loop", f"place s on s * {ranks} // {stages}"]))
    costs = "\n".join(f"cost {kind}@s = {data.draw(st.integers(0, 4))} + s % 2" for kind in ("F", "B", "I", "W"))
    lines = data.draw(st.permutations(data.draw(st.sampled_from([["B[i]@s"], ["I[i]@s", "W[i]@s"]]))))
    # A later stage may always run what an earlier one began, so nothing can hold itself up.
    lines = [*lines, f"F[i]@s when held < {limit} - {stages} + s + 1"]
    priority = data.draw(st.sampled_from(["", " priority -s", " priority i * s - held"]))
    text = f"ranks {ranks}\nstages {stages}\nmicrobatches {microbatches}\n{place}\n{costs}\nauto {{\n"
    text += "\n".join([lines[0] + priority, *lines[1:], "OPT"]) + "\n}\n"
    made = schedule(text)
    assert piper.check(made, memory_limit=limit) == ()
    assert [made.row(rank) for rank in range(ranks)] == [schedule(text).row(rank) for rank in range(ranks)]
