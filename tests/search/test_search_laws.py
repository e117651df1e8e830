"""Laws of the search: whatever the costs and limits, what is found is sound and no worse than the library."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from search_cases import HALF, assert_sound, value_of

import piper_dsl as piper
from piper_dsl.ir.memory import ACTIVATIONS, Memory
from piper_dsl.search import Progress, clock, exact, search
from piper_dsl.search.orders import Orders
from piper_dsl.search.problem import pose
from piper_dsl.search.room import one_at_a_time

FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def costs(draw: st.DrawFn, stages: int) -> piper.Costs:
    """Uneven stages, unequal halves, slow links; sizes of memory now and then."""
    one = st.sampled_from([0.0, 0.5, 1.0, 1.0, 1.25, 2.0, 3.0])
    each = st.one_of(one, st.lists(one, min_size=stages, max_size=stages))
    kinds = {kind: draw(each) for kind in ("F", "B", "I", "W") if draw(st.booleans())}
    size = st.sampled_from([0.5, 1.0, 2.0])
    memory = Memory(
        activation=draw(st.one_of(st.just(1.0), st.lists(size, min_size=stages, max_size=stages))),
        output=draw(st.sampled_from([0.0, 0.0, 0.5])),
        parameters=draw(st.sampled_from([0.0, 3.0])),
        released_at_input=draw(st.sampled_from([0.0, 0.5, 1.0])),
        keeps_sent=draw(st.sampled_from([False, False, True])),
    )
    slow = {"latency": draw(st.sampled_from([0.0, 0.0, 0.3, 2.0])), "overhead": draw(st.sampled_from([0.0, 0.1]))}
    return piper.Costs(memory=memory, bandwidth=draw(st.sampled_from([float("inf"), 2.0])), **slow, **kinds)


@FEW
@given(st.data())
def test_what_is_found_checks_and_is_no_worse_than_any_schedule_of_the_library_that_fits(data: st.DataObject) -> None:
    p, m = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    name = data.draw(st.sampled_from(["zb_h1", "zb_v", "interleaved_1f1b"]))
    # Interleaved, microbatches run in equal rounds.
    m = p * (1 + m % 2) if name == "interleaved_1f1b" else m
    template = piper.load(name, p=p, m=m)
    given_costs = data.draw(costs(template.stages))
    known = piper.load(data.draw(st.sampled_from(["1f1b", "gpipe", "zb_h1"] if name == "zb_h1" else [name])), p=p, m=m)
    slack = data.draw(st.lists(st.sampled_from([0.0, 0.0, 1.0, 9.0]), min_size=p, max_size=p))
    peaks = piper.simulate(known, given_costs).peak_memory
    limits = [peak + more for peak, more in zip(peaks, slack, strict=True)]
    found = search(
        template,
        given_costs,
        memory_limit=data.draw(st.sampled_from([None, limits])),
        measure=data.draw(st.sampled_from(["makespan", "span"])),
        backward=data.draw(st.sampled_from(["any", "split", "whole"])),
        transport=data.draw(st.sampled_from(["buffered", "buffered", "rank", "direction"])),
        time_limit=0.5,
    )
    assert_sound(found)


@FEW
@given(st.data())
def test_a_limit_that_can_be_met_is_met_and_one_just_below_is_refused(data: st.DataObject) -> None:
    p, m = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    template = piper.load(data.draw(st.sampled_from(["zb_h1", "zb_v"])), p=p, m=m)
    given_costs = data.draw(costs(template.stages))
    with pytest.raises(piper.PipeError) as error:
        search(template, given_costs, memory_limit=1e-3, time_limit=1)
    (finding,) = error.value.diagnostics
    assert finding.code == "P602"
    least = [float(part) for part in str(finding.help).rsplit(" ", 1)[1].split(",")]
    least = least * p if len(least) == 1 else least
    assert_sound(search(template, given_costs, memory_limit=least, time_limit=1))
    rank = data.draw(st.integers(0, p - 1))
    least[rank] -= 1e-3
    with pytest.raises(piper.PipeError):
        search(template, given_costs, memory_limit=least, time_limit=1)


@pytest.mark.parametrize(("name", "p", "m", "limit"), [("zb_h1", 8, 32, 8), ("zb_v", 8, 32, 16), ("zb_h1", 3, 400, 3)])
def test_many_microbatches_are_no_worse_than_the_library(name: str, p: int, m: int, limit: float) -> None:
    found = search(
        piper.load(name, p=p, m=m), piper.Costs(F=1, I=1.5, W=0.5, latency=0.2), memory_limit=limit, time_limit=8
    )
    assert_sound(found)


def test_more_ranks_than_microbatches_are_searched_for_directly() -> None:
    found = search(piper.load("zb_h1", p=24, m=16), memory_limit=12, time_limit=2)
    assert_sound(found)
    assert found.stopped in ("", "time limit")


def test_what_repeats_is_found_where_the_library_has_nothing() -> None:
    """Uneven limits: per microbatch, no more than the work of a rank, with hundreds as with few."""
    template = piper.load("zb_h1", p=4, m=300)
    found = search(template, memory_limit=[8, 7, 5, 3], backward="split")
    assert_sound(found)
    assert found.origin == "periodic search"
    assert found.value - 3 * 300 <= 8
    assert max(map(len, found.to_pipe().splitlines())) < 200
    assert len(found.to_pipe().splitlines()) < 120


def test_the_same_seed_gives_the_same_answer() -> None:
    template, given_costs = piper.load("zb_v", p=2, m=5), piper.Costs(F=1.1, I=1.7, W=0.6, latency=0.1)

    def found(seed: int) -> str:
        return search(template, given_costs, memory_limit=3, seed=seed).to_pipe()

    assert found(3) == found(3)


def test_the_time_limit_keeps_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr(clock.time, "monotonic", lambda: float(next(ticks)))
    found = search(piper.load("zb_h1", p=4, m=8), memory_limit=[4, 3, 3, 3], time_limit=40)
    assert found.stopped == "time limit"
    assert_sound(found)


def test_an_interrupt_keeps_the_best_so_far() -> None:
    seen: list[float] = []

    def interrupt(progress: Progress) -> None:
        seen.append(progress.value)
        if progress.origin != "one at a time":
            raise KeyboardInterrupt

    found = search(piper.load("zb_h1", p=4, m=8), memory_limit=[4, 3, 3, 3], watch=interrupt)
    assert found.stopped == "interrupt"
    assert found.value == min(seen)
    assert_sound(found)


def test_an_interrupt_stops_the_exact_solver_at_once() -> None:
    pytest.importorskip("ortools")
    problem = pose(piper.load("zb_v", p=4, m=12), piper.Costs(F=1.3), 5, "makespan", "buffered", "split")
    orders = Orders(problem, problem.forms[0])
    begin = time.monotonic()
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        exact.solve_exactly(orders, one_at_a_time(orders), 0.0, seconds=100, effort=1e9, seed=0)
    assert time.monotonic() - begin < 30


def test_without_the_exact_solver_the_same_figures_are_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact.importlib.util, "find_spec", lambda name: None)
    found = search(
        piper.load("zb_h1", p=4, m=12),
        piper.Costs(F=5, I=6, W=4, memory=HALF),
        memory_limit=5,
        measure="span",
        backward="split",
    )
    assert (found.value, found.proven) == (193, True)


def progress_values(**arguments: object) -> Iterator[float]:
    seen: list[float] = []
    search(piper.load("zb_h1", p=4, m=8), watch=lambda one: seen.append(one.value), **arguments)  # type: ignore[arg-type]
    return iter(seen)


def test_progress_only_gets_better() -> None:
    values = list(progress_values(memory_limit=[4, 3, 2, 2]))
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == len(values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"time_limit": 0}, "the time limit must be more than 0 seconds"),
        ({"memory_limit": [1, 2]}, "2 memory limits for 4 ranks"),
        ({"measure": "speed"}, "there is no measure `speed`; there are makespan, span"),
        ({"backward": "half"}, "there is no backward `half`; there are any, split, whole"),
        ({"transport": "pigeon"}, "pigeon"),
    ],
)
def test_arguments_that_do_not_fit(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        search(piper.load("zb_h1", p=4, m=8), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dualpipe", "copies on several"),
        ("forward_only", "the schedule has no backward"),
    ],
)
def test_templates_that_cannot_be_searched_for(name: str, message: str) -> None:
    with pytest.raises(piper.PipeError, match=message) as error:
        search(piper.load(name, p=4, m=8))
    assert [finding.code for finding in error.value.diagnostics] == ["P603"]


def test_a_library_schedule_that_mixes_forms_wins_where_it_is_better_than_each() -> None:
    found = search(piper.load("zb_v", p=1, m=2), piper.Costs(overhead=0.1))
    assert_sound(found)
    cheap = piper.Costs(**{"F&B": 1.5})
    overlapped = search(piper.load("zb_v", p=4, m=12), cheap, memory_limit=9)
    assert_sound(overlapped)
    assert overlapped.origin == "dualpipev"


def test_costs_of_one_form_decide_what_is_tried() -> None:
    """Without a cost of B it takes what I and W take; with a cost of B alone, nothing is known of its halves."""
    template = piper.load("gpipe", p=2, m=4)
    halves = search(template, piper.Costs(I=5, W=7))
    assert piper.simulate(piper.load("gpipe", p=2, m=4), halves.problem.costs).makespan == 5 * (1 + 12)
    assert halves.value <= 5 * (1 + 12)
    whole = search(template, piper.Costs(B=3))
    assert [kind.name for form in whole.problem.forms for kind in form] == ["F", "B"]
    assert value_of(whole.timeline, "makespan") == whole.value


def test_memory_is_counted_as_the_profile_says() -> None:
    memory = replace(ACTIVATIONS, activation=2.0, parameters=10.0)
    found = search(piper.load("zb_h1", p=2, m=4), piper.Costs(memory=memory), memory_limit=14, backward="split")
    assert_sound(found)
    assert max(found.timeline.peak_memory) == 14


def test_only_schedules_with_backwards_that_are_tried_are_set_beside_what_was_found() -> None:
    found = search(piper.load("1f1b", p=2, m=4), piper.Costs(B=20), time_limit=5)
    assert {known.name for known in found.known} >= {"1f1b", "gpipe"}
    assert not any(piper.Kind.I in known.schedule.kind for known in found.known)
    assert found.value <= min(known.timeline.makespan for known in found.known)


def test_limits_of_the_size_of_bytes_are_met_as_they_are_named() -> None:
    memory = Memory(activation=1234567891.3, parameters=98765432109876.7, released_at_input=0.3)
    template, costs = piper.load("1f1b", p=2, m=4), piper.Costs(memory=memory)
    with pytest.raises(piper.PipeError) as error:
        search(template, costs, memory_limit=1e9, time_limit=5)
    least = float(str(error.value.diagnostics[0].help).rsplit(" ", 1)[1])
    assert_sound(search(template, costs, memory_limit=least, time_limit=5))
