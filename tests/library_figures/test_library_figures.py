"""Published figures of the library, as data: what the simulation must say, to the last slot."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

import piper_dsl as piper
from piper_dsl import Costs, Kind, Timeline

SCHEDULES = Path(__file__).parents[2] / "schedules"
EQUAL_F_AND_B = Costs(F=1, B=1)
COSTS_221 = Costs(F=2, I=2, W=1, B=3)
COSTS_121 = Costs(F=1, I=2, W=1, B=3)


@dataclass(frozen=True)
class Figures:
    """One row, at p = 4. ``comm1``: the end of the last compute when every transfer takes 1."""

    makespan: float
    idle: list[float]
    span: list[float]
    peak: list[int]
    peak_until_input: list[int]
    comm1: float
    equal: float | None = None
    costs_221: float | None = None
    costs_121: float | None = None
    parameters: dict[str, int] = field(default_factory=lambda: {"m": 8})


FIGURES = {
    "gpipe": Figures(33, [9] * 4, [9, 6, 3, 0], [8] * 4, [8] * 4, 39, 22, 55, 44),
    "1f1b": Figures(33, [9] * 4, [9, 6, 3, 0], [4, 3, 2, 1], [4, 3, 2, 1], 49, 22, 55, 44),
    "eager_1f1b": Figures(33, [9] * 4, [9, 6, 3, 0], [7, 5, 3, 1], [7, 5, 3, 1], 39, 22),
    "interleaved_1f1b": Figures(57, [9] * 4, [9, 6, 3, 0], [11, 9, 7, 5], [11, 9, 7, 5], 71, 38, 95, 76),
    "megatron_interleaved": Figures(57, [9] * 4, [9, 6, 3, 0], [11, 9, 7, 5], [11, 9, 7, 5], 71, 38, 95, 76),
    "looped_bfs": Figures(57, [9] * 4, [9, 6, 3, 0], [16] * 4, [16] * 4, 63, 38),
    "zb_h1": Figures(27, [3] * 4, [3, 2, 1, 0], [4] * 4, [4, 3, 2, 1], 41, None, 49, 38),
    "zb_h2": Figures(27, [3] * 4, [0] * 4, [7] * 4, [7, 5, 3, 1], 30, None, 46, 35),
    "interleaved_zb": Figures(51, [3] * 4, [3, 2, 1, 0], [8] * 4, [8, 7, 6, 5], 72),
    "zb_v": Figures(51, [3] * 4, [0] * 4, [8] * 4, [8] * 4, 65, None, 86, 70),
    "v_half": Figures(53, [5] * 4, [5, 3, 3, 2], [6] * 4, [6] * 4, 79, None, 95, 82),
    "v_min": Figures(59, [11] * 4, [11, 9, 7, 6], [4] * 4, [4] * 4, 99, None, 117, 109),
    "1f1b_v": Figures(63, [15] * 4, [15, 12, 9, 6], [6] * 4, [6] * 4, 95, 48),
    "dualpipev": Figures(54, [6] * 4, [6, 5, 4, 3], [9] * 4, [9] * 4, 75),
    "dualpipe": Figures(26, [2] * 4, [2, 1, 1, 2], [5] * 4, [5] * 4, 35),
    "hanayo": Figures(60, [12] * 4, [12, 9, 6, 3], [13, 14, 15, 16], [13, 14, 15, 16], 88, 38),
}
SMALLER = {
    "hanayo": Figures(36, [12] * 4, [12, 9, 6, 3], [5, 6, 7, 8], [5, 6, 7, 8], 52, 22, parameters={"m": 4}),
}


def load(name: str, **parameters: int) -> piper.Schedule:
    schedule = piper.load(str(SCHEDULES / f"{name}.pipe"), parameters)
    assert piper.check(schedule) == ()
    return schedule


def end_of_compute(timeline: Timeline) -> float:
    """The optimizer step of a stage with copies waits for their gradients; that is not what is measured."""
    return float(timeline.end[timeline.schedule.kind != Kind.OPT].max())


def peak_until_input(schedule: piper.Schedule) -> list[int]:
    """Per rank, the most activations that live from F to B or I; in a slot F & B, F comes first."""
    peaks = []
    for rank in range(schedule.ranks):
        live = peak = 0
        for operation in schedule.row(rank):
            live += (operation.kind == Kind.F) - (operation.kind in (Kind.B, Kind.I))
            peak = max(peak, live)
        peaks.append(peak)
    return peaks


@pytest.mark.parametrize(
    ("name", "figures"),
    [*FIGURES.items(), *SMALLER.items()],
    ids=lambda value: value if isinstance(value, str) else f"m={value.parameters['m']}",
)
def test_figures_at_four_ranks(name, figures):
    schedule = load(name, p=4, **figures.parameters)
    timeline = piper.simulate(schedule)
    assert timeline.makespan == figures.makespan
    assert [rank.idle for rank in timeline.ranks] == figures.idle
    assert [rank.span_idle for rank in timeline.ranks] == figures.span
    assert list(timeline.peak_activations) == figures.peak
    assert peak_until_input(schedule) == figures.peak_until_input
    assert end_of_compute(piper.simulate(schedule, Costs(latency=1))) == figures.comm1
    others = ((figures.equal, EQUAL_F_AND_B), (figures.costs_221, COSTS_221), (figures.costs_121, COSTS_121))
    for makespan, costs in others:
        assert makespan is None or piper.simulate(schedule, costs).makespan == makespan


@pytest.mark.parametrize(("overlapped", "makespan"), [(3, 26), (2.5, 24), (2, 22)])
def test_dualpipe_gains_from_a_cheaper_overlapped_slot(overlapped, makespan):
    costs = Costs(**{"F&B": overlapped})
    assert piper.simulate(load("dualpipe", p=4, m=8), costs).makespan == makespan


@pytest.mark.parametrize(("m", "makespan"), [(6, 45), (7, 51), (8, 57), (10, 69)])
def test_interleaved_1f1b_in_rounds_that_are_not_p(m, makespan):
    assert piper.simulate(load("interleaved_1f1b", p=4, v=2, m=m)).makespan == makespan


@pytest.mark.parametrize(("p", "m", "makespan"), [(8, 1, 24), (4, 2, 15)])
def test_fewer_microbatches_than_ranks(p, m, makespan):
    for name in ("gpipe", "1f1b", "eager_1f1b"):
        assert piper.simulate(load(name, p=p, m=m)).makespan == makespan


def test_megatron_groups_set_the_warm_up():
    """Warm-up forwards 10, 8, 6, 4 in groups of p; one forward more comes before the first backward."""
    for n, before in ((4, [11, 9, 7, 5]), (8, [15, 13, 11, 9])):
        schedule = load("megatron_interleaved", p=4, v=2, m=8, n=n)
        rows = [[operation.kind for operation in schedule.row(rank)] for rank in range(4)]
        assert [row.index(Kind.B) for row in rows] == before


@pytest.mark.parametrize("p", [2, 4, 6, 8])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_chimera_idles_p_minus_2_slots_if_backwards_take_one(p, groups):
    schedule = load("chimera", p=p, m=groups * p)
    assert {rank.idle for rank in piper.simulate(schedule, EQUAL_F_AND_B).ranks} == {p - 2}
    further = (groups - 1) * (p - 2)
    assert {rank.idle for rank in piper.simulate(schedule).ranks} == {2 * (p - 2) + further}


@pytest.mark.parametrize("p", [2, 3, 4, 6])
@pytest.mark.parametrize("v", [2, 4])
def test_hanayo_idles_as_its_header_says(p, v):
    for m, n in ((p, p), (p + 1, p + 1), (3 * p, 3 * p), (2 * p, p), (3 * p, p)):
        schedule = load("hanayo", p=p, m=m, v=v, n=n)
        assert {rank.idle for rank in piper.simulate(schedule, EQUAL_F_AND_B).ranks} == {2 * (p - 1)}
        expected = 4 * (p - 1) + (m // n - 1) * 2 * (p - 1)
        assert {rank.idle for rank in piper.simulate(schedule).ranks} == {expected}


@pytest.mark.parametrize("p", [2, 4, 6, 8])
def test_dualpipe_idles_as_published(p):
    """(p / 2 - 1)(F & B + B - 3 W), and the same with p counted in stages; unit costs make it 2."""
    for m in (2 * p, 2 * p + 2, 4 * p):
        halves = piper.simulate(load("dualpipe", p=p, m=m)).ranks
        assert {rank.idle for rank in halves} == {2 * (p // 2 - 1)}
        vee = piper.simulate(load("dualpipev", p=p, m=m)).ranks
        assert {rank.idle for rank in vee} == {2 * (p - 1)}


@pytest.mark.parametrize("p", [1, 2, 4, 7])
def test_zero_bubbles(p):
    for m in (2 * p - 1, 2 * p, 4 * p):
        for name in ("zb_h2", "zb_v"):
            ranks = piper.simulate(load(name, p=p, m=m)).ranks
            assert {rank.idle for rank in ranks} == {p - 1}
            assert {rank.span_idle for rank in ranks} == {0}
