"""What each statement of the language means, one small file each."""

from __future__ import annotations

import re

import numpy as np
import pytest

from piper_dsl.ir.operations import Kind, Operation
from piper_dsl.ir.schedule import Schedule


def _row(schedule: Schedule, rank: int = 0) -> str:
    """`F0 & B1` for joined operations, the stage in front where there is more than one."""
    words = []
    for place, operation in enumerate(schedule.row(rank)):
        token = str(operation) if schedule.stages > 1 else str(operation)[1:]
        words.append("& " + token if schedule.joined[int(schedule.offsets[rank]) + place] else token)
    return " ".join(words)


def _one(schedule, body: str, top: str = "") -> str:
    return _row(schedule(f"ranks 1 microbatches 9 {top} rank r {{ {body} }}"))


@pytest.mark.parametrize(
    ("body", "row"),
    [
        ("F[3]", "F3"),
        ("F[0] B[0] I[1] W[1] R[2]", "F0 B0 I1 W1 R2"),
        ("F[0:3]", "F0 F1 F2"),
        ("F[2:2] F[3:1]", ""),
        ("F[0:7:3]", "F0 F3 F6"),
        ("F[7:0:-3]", "F7 F4 F1"),
        ("F[2:-1:-1]", "F2 F1 F0"),
        ("F[0:3:-1]", ""),
        ("SEND_F[0] RECV_F[1] SEND_B[2] RECV_B[3]", "SEND_F0 RECV_F1 SEND_B2 RECV_B3"),
        ("OPT REDUCE_GRAD UNSHARD RESHARD", "OPT REDUCE_GRAD UNSHARD RESHARD"),
        ("F0 _ 0F1 _ _ 0OPT", "F0 F1 OPT"),
        ("_", ""),
        ("", ""),
        ("F[0] & B[1]", "F0 & B1"),
        ("F0 & B1 & W2 F3", "F0 & B1 & W2 F3"),
        ("for i in 0:2 { F[i] & B[i + 1] }", "F0 & B1 F1 & B2"),
        ("for i in 0:3 { F[i] B[i] }", "F0 B0 F1 B1 F2 B2"),
        ("for i in 6:0:-2 { F[i] }", "F6 F4 F2"),
        ("for i in 0:2 { for j in 0:i + 1 { F[i + j] } OPT }", "F0 OPT F1 F2 OPT"),
        ("for i in 0:2 { } for i in 0:0 { F[i] }", ""),
        ("for i in 0:4 { if i % 2 { F[i] } }", "F1 F3"),
        ("for i in 0:4 { if i < 2 { F[i] } else { B[i] } }", "F0 F1 B2 B3"),
        ("for i in 0:4 { if i == 0 { F[i] } else if i == 1 { B[i] } else { W[i] } }", "F0 B1 W2 W3"),
        ("for i in 0:2 { if i { } else { F[i] } B[i] }", "F0 B0 B1"),
        ("let a = 2 F[a] let b = a * a F[b]", "F2 F4"),
        ("for i in 0:3 { let d = 2 * i F[d] }", "F0 F2 F4"),
        ("let a = 1 for i in 0:2 { let b = a + i F[b] }", "F1 F2"),
    ],
)
def test_bodies(schedule, body: str, row: str) -> None:
    assert _one(schedule, body) == row


@pytest.mark.parametrize(
    ("body", "row"),
    [
        ("let a = 1 if 1 { let a = 2 F[a] } F[a]", "F2 F1"),
        ("let a = 1 for i in 0:2 { let a = i F[a] } F[a]", "F0 F1 F1"),
        ("let i = 5 for i in 0:2 { F[i] } F[i]", "F0 F1 F5"),
        ("for i in 0:2 { for i in 4:6 { F[i] } F[i] }", "F4 F5 F0 F4 F5 F1"),
        ("let a = 1 if 1 { F[a] let a = 2 F[a] } F[a]", "F1 F2 F1"),
        # A name's new value may be made of the one it hides.
        ("let a = 1 if 1 { let a = a + 1 F[a] } F[a]", "F2 F1"),
        ("let a = 1 for i in 0:2 { let a = a + i F[a] } F[a]", "F1 F2 F1"),
        ("for i in 0:2 { if 1 { let i = 4 * i F[i] } F[i] }", "F0 F0 F4 F1"),
        ("let k = k + 1 F[k]", "F4"),
    ],
)
def test_inner_names_hide_outer_ones_until_their_block_ends(schedule, body: str, row: str) -> None:
    assert _one(schedule, body, "let k = 3") == row


def test_a_rank_number_may_be_hidden(schedule) -> None:
    both = schedule("ranks 2 microbatches 9 rank r { F[r] let r = r + 5 F[r] }")
    assert [_row(both, rank) for rank in (0, 1)] == ["0F0 0F5", "1F1 1F6"]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7 // 2", 3),
        ("-7 // 2 + 9", 5),
        ("-7 % 3", 2),
        ("7 % -3 + 5", 3),
        ("7 // -2 + 9", 5),
        ("2 + 3 * 2", 8),
        ("(2 < 3) + (2 < 2) + (2 <= 2) + (3 > 2) + (2 >= 3) + (1 == 1) + (1 != 1)", 4),
        ("0 < 1 < 2 < 3", 1),
        ("0 < 2 < 2", 0),
        ("not 3", 0),
        ("not 0", 1),
        ("1 and 2", 1),
        ("0 or 2", 1),
        ("0 or 0", 0),
        ("5 if 1 else 1 // 0", 5),
        ("1 // 0 if 0 else 4", 4),
        ("0 and 1 // 0", 0),
        ("1 or 1 // 0", 1),
        ("1 < 0 < 1 // 0", 0),
        ("min(4, 3, 5)", 3),
        ("max(4)", 4),
        ("abs(-4) + abs(3)", 7),
        ("- - 4", 4),
        ("+3", 3),
        ("1000000000000000 - 999999999999999", 1),
    ],
)
def test_expressions(schedule, expression: str, value: int) -> None:
    """At the top, where all is one number, and in a loop, where it is one number a lane."""
    assert _one(schedule, f"F[{expression}]") == f"F{value}"
    assert _one(schedule, "F[x]", f"let x = {expression}") == f"F{value}"
    in_lanes = re.sub(r"\d+", r"(\g<0> + (z - z))", expression)
    assert _one(schedule, f"for z in 0:2 {{ F[{in_lanes}] }}") == f"F{value} F{value}"


def test_what_is_decided_is_not_evaluated_in_any_lane(schedule) -> None:
    body = "for i in 0:3 { F[6 // i if i else 7] if i and 6 // i > 3 { B[i] } if not i or 6 // i { W[i] } }"
    assert _one(schedule, body) == "F7 W0 F6 B1 W1 F3 W2"


def test_functions_see_their_arguments_and_the_file(schedule) -> None:
    top = "let k = 2 fn f(x, y) = x * k + y fn g(x) = f(x, 1) + f(0, x) fn h() = k"
    assert _one(schedule, "for i in 0:3 { F[f(i, 0)] } F[g(2)] F[h()]", top) == "F0 F2 F4 F7 F2"


def test_a_function_does_not_see_the_names_of_its_caller(findings) -> None:
    text = "ranks 1 microbatches 1 fn f() = i rank r { for i in 0:1 { F[f()] } }"
    assert findings(text) == ["P201 1:33-34 unknown name `i`"]


def test_sequences_are_inlined_where_they_are_called(schedule) -> None:
    top = "let k = 1 seq one(n) { F[n] B[n + k] } seq two(a, b) { one(a) for i in a:b { one(i) } } seq none() { }"
    assert _one(schedule, "none() one(4) for i in 0:2 { two(i, i + 2) }", top) == (
        "F4 B5 F0 B1 F0 B1 F1 B2 F1 B2 F1 B2 F2 B3"
    )


def test_sequences_know_the_rank_they_run_on(schedule) -> None:
    both = schedule("ranks 2 microbatches 1 stages 4 seq all() { F[0]@stage(0) F[0]@stage(1) OPT } rank r { all() }")
    assert [_row(both, rank) for rank in (0, 1)] == ["0F0 2F0 0OPT 2OPT", "1F0 3F0 1OPT 3OPT"]


def test_definitions_may_stand_below_their_use(schedule) -> None:
    text = "ranks 1 rank r { s(f(1)) } seq s(n) { F[n + k] } fn f(x) = x + k let k = 2 microbatches 9"
    assert _row(schedule(text)) == "F5"


# --- stages, ranks, sizes --------------------------------------------------------------------


def test_stages_default_to_the_ranks(schedule) -> None:
    assert schedule("ranks 3 microbatches 2 rank r { }").stages == 3


def test_the_name_defaults_to_the_files(schedule) -> None:
    assert schedule("ranks 1 microbatches 1 rank r { }").name == "t"
    assert schedule('ranks 1 microbatches 1 schedule "1F1B of mine" rank r { }').name == "1F1B of mine"


@pytest.mark.parametrize(
    ("place", "stages", "owned"),
    [
        ("", 6, ((0, 3), (1, 4), (2, 5))),
        ("place loop", 6, ((0, 3), (1, 4), (2, 5))),
        ("place loop", 4, ((0, 3), (1,), (2,))),
        ("place loop", 2, ((0,), (1,), ())),
        ("place vee", 6, ((0, 5), (1, 4), (2, 3))),
        ("place vee", 3, ((0,), (1,), (2,))),
        ("place vee", 9, ((0, 5, 6), (1, 4, 7), (2, 3, 8))),
        ("place s on min(s, 5 - s)", 6, ((0, 5), (1, 4), (2, 3))),
        ("place s on 2 - s // k", 6, ((4, 5), (2, 3), (0, 1))),
        ("place s on 1", 2, ((), (0, 1), ())),
    ],
)
def test_placements(schedule, place: str, stages: int, owned: tuple[tuple[int, ...], ...]) -> None:
    placed = schedule(f"let k = 2 ranks 3 microbatches 2 stages {stages} {place} rank r {{ OPT }}")
    assert placed.placement.owned == owned
    assert [tuple(op.stage for op in placed.row(rank)) for rank in range(3)] == list(owned)
    home = {stage: rank for rank, own in enumerate(owned) for stage in own}
    assert [placed.placement(stage, 1) for stage in range(stages)] == [home[stage] for stage in range(stages)]


def test_a_placement_by_microbatch_keeps_copies_of_a_stage(schedule) -> None:
    both = schedule("ranks 2 microbatches 4 place s, i on s if i < 2 else 1 - s rank r { OPT }")
    assert both.placement.rank_of.tolist() == [[0, 0, 1, 1], [1, 1, 0, 0]]
    assert both.placement.copies == ((0, 1), (0, 1))
    assert [_row(both, rank) for rank in (0, 1)] == ["0OPT 1OPT", "0OPT 1OPT"]


def test_stage_counts_the_ranks_own_stages_in_increasing_order(schedule) -> None:
    vee = schedule("ranks 2 microbatches 1 stages 4 place vee rank r { for c in 0:2 { F[0]@stage(c) } OPT@stage(1) }")
    assert [_row(vee, rank) for rank in (0, 1)] == ["0F0 3F0 3OPT", "1F0 2F0 2OPT"]


def test_at_names_the_stage(schedule) -> None:
    text = "let k = 1 fn f(x) = x + 1 ranks 1 microbatches 3 stages 4 "
    body = "F[0]@3 F[0:3]@k B[0]@(k + 1) W[1]@f(k) OPT@0 2F1 UNSHARD@k"
    assert _row(schedule(text + f"rank r {{ {body} }}")) == "3F0 1F0 1F1 1F2 2B0 2W1 0OPT 2F1 1UNSHARD"


def test_a_stage_may_be_left_out_where_the_rank_owns_one(schedule) -> None:
    placed = schedule("ranks 2 microbatches 2 place s on 1 - s rank r { F0 F[1] OPT 1F0 }")
    assert [_row(placed, rank) for rank in (0, 1)] == ["1F0 1F1 1OPT 1F0", "0F0 0F1 0OPT 1F0"]


@pytest.mark.parametrize(
    ("bodies", "rows"),
    [
        ("rank r { F[r] }", ["F0", "F1", "F2", "F3"]),
        ("rank 2: F9 rank r { F[r] }", ["F0", "F1", "F9", "F3"]),
        ("rank r { F[r] } rank 2: F9", ["F0", "F1", "F9", "F3"]),
        ("rank 0:2 { F[8] } rank r { F[r] }", ["F8", "F8", "F2", "F3"]),
        ("rank 0:4:2 { F[8] } rank 3:0:-2: F7", ["F8", "F7", "F8", "F7"]),
        ("rank k { F[8] } rank r { F[r] }", ["F0", "F8", "F2", "F3"]),
        ("rank k:k + 2 { F[8] } rank 0: rank 3 { }", ["", "F8", "F8", ""]),
        ("rank 2:2 { F[8] } rank x { F[x] }", ["F0", "F1", "F2", "F3"]),
        ("rank 0: F0 F1 rank 1: B0 & F2 _ rank r: W3", ["F0 F1", "B0 & F2", "W3", "W3"]),
    ],
)
def test_rank_selectors(schedule, bodies: str, rows: list[str]) -> None:
    placed = schedule(f"let k = 1 ranks 4 microbatches 10 {bodies}")
    texts = [_row(placed, rank) for rank in range(4)]
    assert [" ".join(w.lstrip("0123456789") for w in text.split()) for text in texts] == rows


# --- parameters ------------------------------------------------------------------------------


def test_parameters_have_defaults_and_overrides(schedule) -> None:
    text = "param p = 2, 'x' param m = 2 * p let k = m + 1 ranks p microbatches m rank r { F[k] }".replace("'", '"')
    sizes = [(s.ranks, s.microbatches, s.row(0)[0].microbatch) for s in (schedule(text), schedule(text, p=3))]
    assert sizes == [(2, 4, 5), (3, 6, 7)]
    overridden = schedule(text, p=3, m=5)
    assert (overridden.microbatches, dict(overridden.parameters)) == (5, {"p": 3, "m": 5})
    assert dict(schedule(text).parameters) == {"p": 2, "m": 4}


def test_a_rule_that_holds_says_nothing(schedule) -> None:
    text = 'param p = 2 require p % 2 == 0, "even" require p ranks p microbatches 1 rank r { }'
    assert schedule(text, p=6).ranks == 6


@pytest.mark.parametrize(
    ("rule", "parameters", "message", "help_"),
    [
        ("m % p == 0", {"m": 6}, "(p = 4, m = 6)", "p = 3 or 6; or m = 4 or 8"),
        ("m % p == 0", {"p": 3, "m": 2}, "(p = 3, m = 2)", "p = 2; or m = 3"),
        ("m >= 2 * p", {"m": 3}, "(p = 4, m = 3)", "p = 1; or m = 8"),
        ("half(p) == 4", {}, "(p = 4)", "p = 8"),
        ("k == 9", {}, "(m = 8)", "m = 9"),
        ("m > 1000", {}, "(m = 8)", None),
        ("p == 0 - 1", {}, "(p = 4)", None),
    ],
)
def test_rules_name_the_parameters_and_the_nearest_values(diagnostics, rule, parameters, message, help_) -> None:
    top = "param p = 4 param m = 8 fn half(x) = x // 2 let k = m ranks 1 microbatches 1"
    text = f'{top}\nrequire {rule}, "no"\nrank r {{ }}'
    (found,) = diagnostics(text, **parameters)
    assert (found.code, found.span.line, found.span.column, found.span.end_column) == ("P216", 2, 1, 15 + len(rule))
    assert found.message == f"no {message}"
    assert found.help == (None if help_ is None else f"nearest that satisfy every rule: {help_}")


def test_nearest_values_move_the_defaults_that_depend_on_them(diagnostics) -> None:
    """Where `n` is not given it follows `p`, also for the values that are offered."""
    text = 'param p = 4 param n = p ranks 1 microbatches 1\nrequire p < 4 and n == p, "no"\nrank r { }'
    (found,) = diagnostics(text)
    assert found.message == "no (p = 4, n = 4)"
    assert found.help == "nearest that satisfy every rule: p = 3"


# --- stage graph, ties, costs ----------------------------------------------------------------


def test_the_stage_graph_is_a_chain_unless_said_otherwise(schedule) -> None:
    sizes = "ranks 4 microbatches 1 rank r { }"
    assert schedule(sizes).graph.edges == ((0, 1), (1, 2), (2, 3))
    towers = schedule("edge 2 -> 3 edge 0 -> 2 edge 1 -> 2 " + "param k = 3 " + sizes).graph
    assert towers.edges == ((0, 2), (1, 2), (2, 3))
    assert towers.predecessors == ((), (), (0, 1), (2,))


def test_ties(schedule) -> None:
    assert schedule("ranks 4 microbatches 1 tie 3, 0 tie 1, 2 rank r { }").ties == ((0, 3), (1, 2))


def test_costs_by_kind_and_stage(schedule) -> None:
    text = "let k = 1 cost F = 3 cost B@s = 2 + (s == 0) cost F@k = 5 cost OPT@(k + 1) = 7 cost F & B = 4"
    costs = schedule(f"ranks 3 microbatches 1 {text} rank r {{ }}")
    nan = np.nan
    assert np.array_equal(costs.declared_costs[Kind.F], [3, 5, 3])
    assert np.array_equal(costs.declared_costs[Kind.B], [3, 2, 2])
    assert np.array_equal(costs.declared_costs[Kind.OPT], [nan, nan, 7], equal_nan=True)
    assert np.isnan(costs.declared_costs[[Kind.I, Kind.W, Kind.R]]).all()
    assert {kinds: list(row) for kinds, row in costs.overlap_costs.items()} == {(Kind.F, Kind.B): [4, 4, 4]}


def test_a_cost_line_sees_what_stands_above_it(schedule) -> None:
    """`s` is fresh where the cost line stands, whatever is defined below."""
    costs = schedule("ranks 2 microbatches 1 cost B@s = 2 + s let s = 1 rank r { }")
    assert costs.declared_costs[Kind.B].tolist() == [2, 3]


# --- origins ---------------------------------------------------------------------------------


def test_every_operation_knows_its_place_and_its_variables(schedule) -> None:
    text = """ranks 2
microbatches 9
seq s(n) { W[n] }
rank 0: F0 B1
rank r { for i in 0:2 { F[i] for j in 3:5 { B[j] } s(i + 5) } }
"""
    placed = schedule(text)
    origin = placed.origin
    found = [(str(placed.operation(k)), origin.span(k), placed.where(k)) for k in range(len(placed))]
    assert [(name, span.line, span.text, where) for name, span, where in found] == [
        ("0F0", 4, "F0", ""),
        ("0B1", 4, "B1", ""),
        ("1F0", 5, "F[i]", " for r = 1, i = 0"),
        ("1B3", 5, "B[j]", " for r = 1, i = 0, j = 3"),
        ("1B4", 5, "B[j]", " for r = 1, i = 0, j = 4"),
        ("1W5", 3, "W[n]", " for r = 1, i = 0, n = 5"),
        ("1F1", 5, "F[i]", " for r = 1, i = 1"),
        ("1B3", 5, "B[j]", " for r = 1, i = 1, j = 3"),
        ("1B4", 5, "B[j]", " for r = 1, i = 1, j = 4"),
        ("1W6", 3, "W[n]", " for r = 1, i = 1, n = 6"),
    ]


def test_a_microbatch_out_of_range_keeps_its_number(schedule) -> None:
    row = schedule("ranks 1 microbatches 2 rank r { F[-1] F[7] }").row(0)
    assert row == (Operation(Kind.F, 0, -1), Operation(Kind.F, 0, 7))
