"""Figures: those the zero-bubble heuristics reach, the library's at their own limits, and the proofs of both."""

from __future__ import annotations

import pytest
from search_cases import HALF, assert_sound, every_schedule

import piper_dsl as piper
from piper_dsl.interop.pipe_text import to_pipe
from piper_dsl.ir.operations import PER_MICROBATCH
from piper_dsl.search import Found, Resource, search
from piper_dsl.search.bounds import lower_bound
from piper_dsl.search.problem import pose
from piper_dsl.testing import Compute, Recv, Send, Transfer, interpret

TABLE = [
    # m, (F, I, W), latency, limit in activations, what is to be reached, what sets it
    (8, (1, 1, 1), 0, 4, 27, Resource.MEMORY),
    (8, (1, 1, 1), 0, 7, 24, Resource.STAGE),
    (8, (1, 1, 1), 1, 8, 29, Resource.LINK),
    (12, (5, 6, 4), 0, 5, 193, Resource.MEMORY),
]


def programs(schedule: piper.Schedule) -> list[list[Compute | Send | Recv]]:
    """Plain actions of a chain: receive right before, send right behind, one compute an operation."""
    rows: list[list[Compute | Send | Recv]] = []
    for rank in range(schedule.ranks):
        row: list[Compute | Send | Recv] = []
        for operation in schedule.row(rank):
            kind, stage, i = operation.kind.name, operation.stage, operation.microbatch
            if operation.kind not in PER_MICROBATCH or i is None:
                continue
            way, source, target = ("F", stage - 1, stage + 1) if kind == "F" else ("B", stage + 1, stage - 1)
            crosses = kind != "W"
            arrivals = ()
            if crosses and 0 <= source < schedule.stages:
                arrivals = (Transfer(way, source, stage, i),)
                row.append(Recv(arrivals[0], schedule.placement(source)))
            before = {"F": (), "I": ("F",), "B": ("F",), "W": ("I",)}[kind]
            row.append(Compute(str(operation), tuple(f"{stage}{other}{i}" for other in before), arrivals))
            if crosses and 0 <= target < schedule.stages:
                row.append(Send(Transfer(way, stage, target, i), schedule.placement(target), str(operation)))
        rows.append(row)
    return rows


@pytest.mark.parametrize(("m", "costs", "latency", "limit", "reached", "resource"), TABLE)
def test_the_heuristics_of_zero_bubble_are_reached_and_proven_to_be_the_best(
    m: int, costs: tuple[float, float, float], latency: float, limit: float, reached: float, resource: Resource
) -> None:
    f, i, w = costs
    template = piper.load("gpipe", p=4, m=m)
    given = piper.Costs(F=f, I=i, W=w, latency=latency, memory=HALF)
    found = search(template, given, memory_limit=limit, measure="span", backward="split")
    assert_sound(found)
    assert found.value == max(rank.end - rank.start for rank in found.timeline.ranks) == reached
    assert found.proven
    assert found.bound.resource is resource
    again = piper.simulate(found.schedule, given)
    assert max(rank.end - rank.start for rank in again.ranks) == reached
    assert interpret(programs(found.schedule), "buffered").completed


@pytest.mark.parametrize(
    ("name", "limit", "makespan"),
    [("zb_h1", 4, 27), ("zb_h2", 7, 27), ("zb_v", 8, 51), ("v_half", 6, 53), ("v_min", 4, 59)],
)
def test_the_library_is_not_beaten_where_it_is_known_to_be_good(name: str, limit: float, makespan: float) -> None:
    found = search(piper.load(name, p=4, m=8), memory_limit=limit, backward="split", time_limit=20)
    assert_sound(found)
    assert found.value <= makespan


@pytest.mark.parametrize("last", [("B",), ("I", "W")])
@pytest.mark.parametrize("measure", ["makespan", "span"])
@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("unit", [1.0, 3**-0.5, 1e-5 / 7])
def test_every_order_of_a_tiny_problem_is_no_better(
    last: tuple[str, ...], measure: str, limit: float, unit: float
) -> None:
    """The bounds and the proofs of the exact solver, which counts in whole numbers, against all orders there are."""
    kinds = {"F": [2, 2], "B": [3, 4], "I": [1, 2], "W": [2, 1]}
    scaled = {kind: [one * unit for one in each] for kind, each in kinds.items()}
    costs = piper.Costs(latency=0.5, **scaled)
    least = min(
        timeline.makespan if measure == "makespan" else max(rank.end - rank.start for rank in timeline.ranks)
        for schedule in every_schedule(2, 2, last)
        if not piper.check(schedule, memory_limit=limit)
        for timeline in [piper.simulate(schedule, costs)]
    )
    backward = "whole" if last == ("B",) else "split"
    template = piper.load("gpipe", p=2, m=2)
    found = search(template, costs, memory_limit=limit, measure=measure, backward=backward)
    assert_sound(found)
    assert found.value == pytest.approx(least)
    assert found.bound.value <= least + 1e-9


@pytest.mark.parametrize(("name", "limit"), [("zb_h1", 2), ("zb_h1", 3), ("zb_v", 3), ("zb_v", 4)])
def test_small_problems_are_certified(name: str, limit: float) -> None:
    pytest.importorskip("ortools")
    costs = piper.Costs(F=[2, 3, 2, 3, 2, 3][: 6 if name == "zb_v" else 3], I=3, W=1, latency=0.5)
    found = search(piper.load(name, p=3, m=4), costs, memory_limit=limit, time_limit=60)
    assert_sound(found)
    assert found.proven
    assert not found.stopped


def test_without_limits_and_links_a_bound_says_what_they_cost() -> None:
    problem = pose(piper.load("zb_h1", p=4, m=8), piper.Costs(latency=1), 4, "span", "buffered", "split")
    bound = lower_bound(problem)
    assert (bound.value, bound.resource) == (33, Resource.MEMORY)
    assert bound.without_memory == 29
    assert bound.without_latency == 27


def test_the_answer_is_a_file_that_says_the_same() -> None:
    found = search(piper.load("zb_h1", p=3, m=5), piper.Costs(F=1, I=2, W=1), memory_limit=[3, 2, 2])
    text = found.to_pipe()
    assert text.startswith("# Found by `piper-dsl search`, seed 0, by ")
    assert "# Costs by stage: F = 1, I = 2, W = 1; transfers 0, transport buffered.\n" in text
    assert "# Memory limit by rank, in activations: 3 2 2; peaks " in text
    assert f"# Makespan {found.value:g}; no order is shorter" in text
    assert text.endswith(to_pipe(found.schedule))


@pytest.mark.parametrize(("unit", "measure"), [(1e-12, "makespan"), (3e-7, "span"), (1e9, "makespan")])
def test_the_unit_of_time_changes_nothing(unit: float, measure: str) -> None:
    schedule = piper.load("zb_h1", p=3, m=5)

    def searched(unit: float) -> Found:
        costs = piper.Costs(F=5 * unit, I=6 * unit, W=4 * unit, latency=0.5 * unit, overhead=0.25 * unit)
        return search(schedule, costs, memory_limit=3, measure=measure)

    one, other = searched(1.0), searched(unit)
    assert other.value == pytest.approx(one.value * unit, rel=1e-9, abs=0)
    assert other.bound.value == pytest.approx(one.bound.value * unit, rel=1e-9, abs=0)
    assert other.bound.resource == one.bound.resource
    assert other.proven == one.proven
    assert f"{other.value:g}; " in other.to_pipe()
    for known in other.known:
        assert known.timeline.makespan > unit
