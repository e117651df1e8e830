"""Published and recomputed values: makespans, bubbles, peaks (reference_values.md and cases.md)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from piper_dsl.library import load
from piper_dsl.simulate import Costs, Timeline, simulate

ORDERS = json.loads((Path(__file__).parent.parent / "data" / "reference_orders.json").read_text(encoding="utf-8"))
NAMES = {"gpipe": "gpipe", "1f1b": "1f1b", "interleaved_1f1b": "interleaved_1f1b_v2", "zb_h1": "zb_h1"}
SIZES = {"p": 4, "m": 8}


def _run(name: str, costs: Costs | None = None, **parameters: int) -> Timeline:
    return simulate(load(name, {**SIZES, **parameters}), costs)


@pytest.mark.parametrize("name", NAMES)
def test_the_order_is_the_published_one(name: str) -> None:
    schedule = load(name, SIZES)
    rows = [[str(operation) for operation in schedule.row(rank)] for rank in range(4)]
    without_step = [[token for token in row if not token.endswith("OPT")] for row in rows]
    assert without_step == ORDERS[NAMES[name]]["ranks"]
    steps = [row[len(short) :] for row, short in zip(rows, without_step, strict=True)]
    assert steps == [[f"{stage}OPT" for stage in schedule.placement.owned[rank]] for rank in range(4)]


@pytest.mark.parametrize(
    ("name", "makespan", "idle", "span", "peaks"),
    [
        ("gpipe", 33, [9, 9, 9, 9], [9, 6, 3, 0], (8, 8, 8, 8)),
        ("1f1b", 33, [9, 9, 9, 9], [9, 6, 3, 0], (4, 3, 2, 1)),
        ("interleaved_1f1b", 57, [9, 9, 9, 9], [9, 6, 3, 0], (11, 9, 7, 5)),
        ("zb_h1", 27, [3, 3, 3, 3], [3, 2, 1, 0], (4, 4, 4, 4)),
    ],
)
def test_unit_costs(name: str, makespan: float, idle: list[float], span: list[float], peaks: tuple[int, ...]) -> None:
    timeline = _run(name)
    assert timeline.makespan == makespan
    assert [rank.idle for rank in timeline.ranks] == idle
    assert [rank.span_idle for rank in timeline.ranks] == span
    assert timeline.peak_activations == peaks
    assert tuple(rank.peak_activations for rank in timeline.ranks) == peaks
    assert [rank.busy for rank in timeline.ranks] == [makespan - i for i in idle]
    assert [rank.rank for rank in timeline.ranks] == [0, 1, 2, 3]
    busy = sum(makespan - i for i in idle)
    longest = max(rank.end - rank.start for rank in timeline.ranks)
    assert timeline.bubble.idle == pytest.approx(1 - busy / (4 * makespan))
    assert timeline.bubble.span == pytest.approx(1 - busy / (4 * longest))
    assert timeline.transfer_wait == 0


@pytest.mark.parametrize(("name", "makespan"), [("gpipe", 22), ("1f1b", 22), ("interleaved_1f1b", 38)])
def test_backward_as_long_as_forward(name: str, makespan: float) -> None:
    assert _run(name, Costs(F=1, B=1)).makespan == makespan


@pytest.mark.parametrize(("name", "makespan"), [("gpipe", 39), ("1f1b", 49), ("interleaved_1f1b", 71), ("zb_h1", 41)])
def test_one_unit_from_rank_to_rank(name: str, makespan: float) -> None:
    timeline = _run(name, Costs(latency=1))
    assert timeline.makespan == makespan
    assert [rank.busy for rank in timeline.ranks] == [rank.busy for rank in _run(name).ranks]


@pytest.mark.parametrize(
    ("costs", "makespans"),
    [
        ((2, 2, 1), {"gpipe": 55, "1f1b": 55, "zb_h1": 49, "interleaved_1f1b": 95}),
        ((1, 2, 1), {"gpipe": 44, "1f1b": 44, "zb_h1": 38, "interleaved_1f1b": 76}),
    ],
)
def test_other_costs(costs: tuple[int, int, int], makespans: dict[str, float]) -> None:
    forward, input_half, weight_half = costs
    unequal = Costs(F=forward, B=input_half + weight_half, I=input_half, W=weight_half)
    assert {name: _run(name, unequal).makespan for name in makespans} == makespans


@pytest.mark.parametrize(
    ("name", "p", "m", "makespan", "bubble"),
    [
        ("1f1b", 8, 64, 213, "9.86%"),  # E1
        ("1f1b", 4, 8, 33, "27.27%"),  # E1
        ("zb_h1", 4, 8, 27, "11.11%"),  # E1
        ("gpipe", 2, 4, 15, "20.00%"),
        ("1f1b", 2, 4, 15, "20.00%"),
        ("gpipe", 2, 1, 6, "50.00%"),  # E6
        ("gpipe", 2, 2, 9, "33.33%"),  # E6
        ("1f1b", 8, 1, 24, "87.50%"),  # B10
        ("gpipe", 8, 1, 24, "87.50%"),  # B10
        ("1f1b", 4, 2, 15, "60.00%"),  # B10
        ("gpipe", 4, 2, 15, "60.00%"),  # B10
        ("1f1b", 1, 3, 9, "0.00%"),
        ("interleaved_1f1b", 2, 4, 27, "11.11%"),  # B19
        ("interleaved_1f1b", 8, 16, 117, "17.95%"),  # B19
    ],
)
def test_other_sizes(name: str, p: int, m: int, makespan: float, bubble: str) -> None:
    timeline = _run(name, p=p, m=m)
    assert timeline.makespan == makespan
    assert f"{timeline.bubble.idle:.2%}" == bubble


def test_case_a1(schedule) -> None:
    text = "ranks 2 microbatches 2 rank 0: 0F0 0F1 0I0 0W0 0I1 0W1 rank 1: 1F0 1I0 1W0 1F1 1I1 1W1"
    assert simulate(schedule(text)).makespan == 8


def test_case_a8(schedule) -> None:
    text = """ranks 2 microbatches 1 stages 4 place s on min(s, 3 - s)
        rank 0: 0F0 3F0 3B0 0B0 rank 1: 1F0 2F0 2B0 1B0"""
    timeline = simulate(schedule(text))
    assert timeline.makespan == 12
    # 1 → 2 and 2 → 1 stay on their rank: only four hops pay for the way.
    assert simulate(schedule(text), Costs(latency=1)).makespan == 16


def test_case_b17_a_stage_without_work() -> None:
    timeline = _run("1f1b", Costs(F=[1, 1, 1, 0], B=[2, 2, 2, 0]))
    assert timeline.makespan == 30
    assert (timeline.ranks[3].busy, timeline.ranks[3].idle) == (0, 30)


def test_case_b17_as_cost_lines(schedule) -> None:
    text = "cost F@3 = 0 cost B@s = 2 * (s != 3) ranks 4 microbatches 8 rank r { F[0:0] "
    text += "let w = min(8, 3 - r) F[0:w] for i in 0:8 - w { F[w + i] B[i] } B[8 - w:8] OPT }"
    assert simulate(schedule(text)).makespan == 30


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb_h1"])
def test_costs_of_nothing_divide_by_nothing(name: str) -> None:
    timeline = _run(name, Costs(F=0, B=0, I=0, W=0))
    assert (timeline.makespan, timeline.bubble.idle, timeline.bubble.span) == (0, 0, 0)
    assert [(rank.busy, rank.idle, rank.span_idle) for rank in timeline.ranks] == [(0, 0, 0)] * 4


@pytest.mark.parametrize(
    ("name", "m", "peak"),
    [("1f1b", 1, 1), ("1f1b", 2, 2), ("1f1b", 4, 4), ("1f1b", 8, 4), ("1f1b", 32, 4)]
    + [("gpipe", m, m) for m in (1, 2, 4, 8)],
)
def test_case_d3_peak_of_the_first_rank(name: str, m: int, peak: int) -> None:
    assert _run(name, m=m).peak_activations[0] == peak


def test_case_c5_forwards_before_the_first_backward() -> None:
    """Warm-up forwards 10, 8, 6, 4, and one more before the first backward."""
    schedule = load("interleaved_1f1b", SIZES)
    rows = [[str(operation) for operation in schedule.row(rank)] for rank in range(4)]
    assert [next(i for i, token in enumerate(row) if "B" in token) for row in rows] == [11, 9, 7, 5]


def test_case_e3_starts(schedule) -> None:
    timeline = simulate(load("gpipe", p=4, m=4), Costs(F=1, B=1))
    named = {str(timeline.schedule.operation(k)): k for k in range(len(timeline.schedule))}
    starts = {name: timeline.start[named[name]] for name in ("0F0", "3F0", "3B0", "0B0", "0B3")}
    assert starts == {"0F0": 0, "3F0": 3, "3B0": 7, "0B0": 10, "0B3": 13}
    assert timeline.makespan == 14


def test_case_e4_start_of_the_second_rank() -> None:
    timeline = simulate(load("1f1b", p=4, m=4))
    named = {str(timeline.schedule.operation(k)): k for k in range(len(timeline.schedule))}
    assert timeline.start[named["1F0"]] == 1
