"""The clock on small files: costs and where they come from, slots, latency, bounds, critical path."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from piper_dsl.ir.clock import run_schedule
from piper_dsl.ir.schedule import Schedule
from piper_dsl.library import load
from piper_dsl.simulate import Costs, DoesNotComplete, Timeline, simulate


def _times(timeline: Timeline) -> dict[str, tuple[float, float]]:
    schedule: Schedule = timeline.schedule
    return {str(schedule.operation(k)): (timeline.start[k], timeline.end[k]) for k in range(len(schedule))}


def test_every_operation_starts_when_its_rank_and_its_needs_are_ready(schedule) -> None:
    timeline = simulate(schedule("ranks 2 microbatches 2 rank 0: F0 F1 B0 B1 0OPT rank 1: F0 B0 F1 B1 1OPT"))
    assert _times(timeline) == {
        "0F0": (0, 1),
        "0F1": (1, 2),
        "0B0": (4, 6),
        "0B1": (7, 9),
        "0OPT": (9, 9),
        "1F0": (1, 2),
        "1B0": (2, 4),
        "1F1": (4, 5),
        "1B1": (5, 7),
        "1OPT": (7, 7),
    }
    assert [(r.start, r.end, r.busy, r.idle, r.span_idle) for r in timeline.ranks] == [(0, 9, 6, 3, 3), (1, 7, 6, 3, 0)]
    assert list(map(str, timeline.critical_path)) == ["0F0", "1F0", "1B0", "1F1", "1B1", "0B1"]


def test_latency_passes_between_ranks_only_and_occupies_nobody(schedule) -> None:
    text = "ranks 2 microbatches 1 stages 3 place s on s // 2 rank 0: 0F0 1F0 1B0 0B0 rank 1: 2F0 2B0"
    timeline = simulate(schedule(text), Costs(latency=10))
    assert _times(timeline) == {
        "0F0": (0, 1),
        "1F0": (1, 2),
        "2F0": (12, 13),
        "2B0": (13, 15),
        "1B0": (25, 27),
        "0B0": (27, 29),
    }
    assert [rank.busy for rank in timeline.ranks] == [6, 3]


FILE = {"0F": 3, "1F": 9, "0B": 7, "1B": 2, "0I": 1, "1I": 1, "0W": 1, "1W": 1, "0OPT": 0, "1OPT": 0}


@pytest.mark.parametrize(
    ("costs", "changed"),
    [
        (None, {}),
        (Costs(F=2), {"0F": 2, "1F": 2}),
        (Costs(F=[5.0, 0.0], W=0.5), {"0F": 5, "1F": 0, "0W": 0.5, "1W": 0.5}),
        (Costs(OPT=4, I=3), {"0OPT": 4, "1OPT": 4, "0I": 3, "1I": 3}),
    ],
)
def test_the_caller_overrides_the_file_and_the_file_the_defaults(
    schedule, costs: Costs | None, changed: dict[str, float]
) -> None:
    text = "cost F = 3 cost F@1 = 9 cost B@0 = 7 ranks 1 microbatches 2 stages 2 "
    row = "0F0 0F1 1F0 1F1 1B0 0B0 1I1 0I1 1W1 0W1 0OPT 1OPT"
    times = _times(simulate(schedule(f"{text} rank 0: {row}"), costs))
    expected = FILE | changed
    assert {name: end - start for name, (start, end) in times.items()} == {
        name: expected[name if name.endswith("OPT") else name[:-1]] for name in row.split()
    }


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Costs(Q=1), "no kind of operation is called Q"),
        (lambda: Costs(f=1), "no kind of operation is called f"),
        (lambda: Costs(F=-1), "the cost of F must be a finite number of at least 0, not -1"),
        (lambda: Costs(B=[1.0, -2.0]), "the cost of B must be a finite number of at least 0"),
        (lambda: Costs(F=float("nan")), "the cost of F must be a finite number of at least 0, not nan"),
        (lambda: Costs(F=float("inf")), "the cost of F must be a finite number of at least 0, not inf"),
        (lambda: Costs(latency=-0.5), "the cost of latency must be a finite number of at least 0, not -0.5"),
    ],
)
def test_costs_that_are_none(make, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        make()


def test_costs_for_another_number_of_stages() -> None:
    with pytest.raises(ValueError, match=r"^3 costs of F for 4 stages$"):
        simulate(load("gpipe", p=4, m=2), Costs(F=[1, 2, 3]))


@pytest.mark.parametrize(
    ("cost", "makespan"),
    [("", 1 + 3 + 2), ("cost F & B = 2", 1 + 2 + 2), ("cost B & F = 2", 5), ("cost F & B@1 = 2", 6)],
)
def test_an_overlapped_slot_takes_its_declared_cost_or_the_sum(schedule, cost: str, makespan: float) -> None:
    text = f"ranks 1 microbatches 2 stages 2 place s on 0 {cost} "
    timeline = simulate(schedule(text + "rank 0: 0F0 0F1 & 0B0 0B1"))
    assert timeline.makespan == makespan
    assert timeline.ranks[0].busy == makespan


def test_the_halves_of_a_slot_start_together_when_the_needs_of_both_are_met(schedule) -> None:
    timeline = simulate(schedule("ranks 2 microbatches 2 rank 0: F0 F1 B0 B1 rank 1: F0 F1 & B0 B1"))
    times = _times(timeline)
    assert (times["1F0"], times["1F1"], times["1B0"], times["1B1"]) == ((1, 2), (2, 5), (2, 5), (5, 7))
    assert timeline.peak_activations == (2, 2)


def test_the_new_activation_of_a_slot_lives_before_the_old_one_dies(schedule) -> None:
    serial = simulate(schedule("ranks 1 microbatches 2 rank 0: F0 B0 F1 B1"))
    joined = simulate(schedule("ranks 1 microbatches 2 rank 0: F0 B0 & F1 B1"))
    assert (serial.peak_activations, joined.peak_activations) == ((1,), (2,))


@pytest.mark.parametrize(
    "text",
    [
        "ranks 2 microbatches 2 rank 0: 0F0 0B0 0F1 0B1 rank 1: 1F1 1F0 1B0 1B1",
        "ranks 1 microbatches 1 rank 0: B0 F0",
        "ranks 1 microbatches 1 rank 0: 0F0 0B0 3F0",
    ],
)
def test_what_cannot_run_is_not_simulated(schedule, text: str) -> None:
    with pytest.raises(DoesNotComplete, match="check it first"):
        simulate(schedule(text))


def test_a_forward_only_schedule(schedule) -> None:
    timeline = simulate(schedule("ranks 3 microbatches 4 rank r { F[0:4] }"))
    assert (timeline.makespan, timeline.bounds.busiest_rank, timeline.bounds.chain) == (6, 6, 3)
    assert timeline.peak_activations == (1, 1, 1)


def test_a_rank_that_does_nothing(schedule) -> None:
    timeline = simulate(schedule("ranks 2 microbatches 1 stages 1 rank 0: F0 B0 0OPT rank 1:"))
    idle = timeline.ranks[1]
    assert (idle.busy, idle.idle, idle.span_idle, idle.start, idle.end, idle.peak_activations) == (0, 3, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("name", "busiest", "chain"),
    [("gpipe", 33, 12), ("1f1b", 33, 12), ("interleaved_1f1b", 57, 24), ("zb_h1", 27, 9)],
)
def test_bounds_of_the_library(name: str, busiest: float, chain: float) -> None:
    bounds = simulate(load(name, p=4, m=8)).bounds
    assert (bounds.busiest_rank, bounds.chain) == (busiest, chain)


def test_gathering_parameters_early_takes_no_chain_with_it(schedule) -> None:
    """The last rank gathers while the others run forward: lead-in and gathering do not add up."""
    text = "ranks 2 microbatches 1 rank 0: F0 B0 rank 1: 1UNSHARD 1F0 1B0 1RESHARD"
    timeline = simulate(schedule(text), Costs(F=3, UNSHARD=5, RESHARD=5))
    assert timeline.makespan == 15
    assert timeline.bounds.busiest_rank <= 15


def test_the_last_runs_alone_are_remembered() -> None:
    schedule = load("1f1b", p=2, m=2)
    delays = Costs().delays(schedule)
    times = [np.full(len(schedule.slots), 1.0 + number) for number in range(100)]
    found = [weakref.ref(run_schedule(schedule, durations, delays)) for durations in times]
    assert found[-1]() is run_schedule(schedule, times[-1].copy(), delays.copy())
    assert found[0]() is None
