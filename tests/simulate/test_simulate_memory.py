"""What ranks hold: sizes of a profile, buffers of what is sent, and the curve over time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from piper_dsl.check import check
from piper_dsl.ir.costs import Costs
from piper_dsl.ir.memory import ACTIVATIONS, Memory, live_memory
from piper_dsl.ir.operations import Kind
from piper_dsl.ir.schedule import Schedule
from piper_dsl.library import load
from piper_dsl.simulate import Timeline, simulate

NOTHING = Memory(activation=0.0)


def _peaks(name: str, memory: Memory, transport: str = "buffered", latency: float = 0.0, **parameters: int) -> list:
    costs = Costs(memory=memory, latency=latency)
    return list(simulate(load(name, p=4, **{"m": 8, **parameters}), costs, transport).peak_memory)


def test_the_largest_rank_counts_its_own_parameters() -> None:
    memory = Memory(activation=0.0, parameters=[1.0, 2.0, 2.0, 3.0])
    assert _peaks("1f1b", memory) == [1, 2, 2, 3]
    assert [finding.code for finding in check(load("1f1b", p=4, m=8), "buffered", 2, memory)] == ["P601"]


def test_stages_of_one_rank_add_up_what_they_hold_all_the_time() -> None:
    memory = Memory(activation=0.0, parameters=[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0], optimizer=0.5)
    assert _peaks("interleaved_1f1b", memory, v=2) == [18, 35, 69, 137]


def test_one_gradient_buffer_a_stage_whatever_the_number_of_microbatches() -> None:
    memory = Memory(gradients=1.0)
    assert _peaks("1f1b", memory, m=8) == _peaks("1f1b", memory, m=32) == [5, 4, 3, 2]


def test_outputs_are_freed_when_sent_or_kept_to_the_end_of_the_step() -> None:
    sent, kept = Memory(activation=0.0, output=1.0), Memory(activation=0.0, output=1.0, keeps_sent=True)
    assert _peaks("1f1b", sent) == [1, 1, 1, 1]
    # Rank 0 sends 8 activations, the ranks between 8 activations and 8 gradients, the last one 8 gradients.
    assert _peaks("1f1b", kept) == [8, 16, 16, 8]
    assert _peaks("1f1b", kept, "pair") == [8, 16, 16, 8]


def test_an_output_is_held_while_its_send_takes_time() -> None:
    sent = Memory(activation=0.0, output=1.0)
    # Rank 0 runs four forwards in a row; with a latency of 2.5 each output outlives the two forwards behind it.
    assert _peaks("1f1b", sent, latency=2.5)[0] == 4
    assert _peaks("1f1b", sent, "pair", latency=2.5)[0] >= 4


def test_a_recomputed_stage_keeps_its_input(schedule) -> None:
    text = "ranks 1 microbatches 2 rank 0: F0 F1 R0 B0 R1 B1"
    live = live_memory(schedule(text), Memory(activation=10.0, input=1.0))
    assert live.tolist() == [10, 11, 11, 11, 10, 10]


def test_sizes_may_differ_by_stage(schedule) -> None:
    text = "ranks 1 stages 2 microbatches 1 rank 0: 0F0 1F0 1I0 0B0 1W0"
    live = live_memory(schedule(text), Memory(activation=[3.0, 5.0], released_at_input=0.25))
    assert live.tolist() == [3, 8, 8, 6.75, 3.75]


def test_the_first_operation_at_the_peak_is_named() -> None:
    timeline = simulate(load("1f1b", p=4, m=8))
    assert [str(rank.peak_at) for rank in timeline.ranks] == ["0F3", "1F2", "2F1", "3F0"]


def test_a_message_takes_its_size_over_the_bandwidth() -> None:
    schedule = load("1f1b", p=3, m=1)
    memory = Memory(output=[2.0, 4.0, 100.0])
    # 1 + 0.5 + 1 + 1 + 1 and back: the last stage sends no output, and gets no gradient of one.
    timeline = simulate(schedule, Costs(bandwidth=4.0, memory=memory))
    assert timeline.makespan == 9 + 2 * (0.5 + 1.0)
    assert timeline.bounds.chain == timeline.makespan
    assert simulate(schedule, Costs(bandwidth=4.0, memory=memory), "rank").makespan == timeline.makespan


def test_overhead_is_paid_by_every_operation_and_makes_the_best_number_of_microbatches_finite() -> None:
    def whole_batch(m: int) -> float:
        return simulate(load("gpipe", p=2, m=m), Costs(F=8 / m, B=16 / m, overhead=0.25)).makespan

    times = {m: whole_batch(m) for m in (1, 2, 4, 8, 16, 32)}
    assert min(times, key=times.__getitem__) == 8
    assert times[1] == 48 + 4 * 0.25 + 0.25


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"activation": -1.0}, "the memory of activation must be a finite number of at least 0"),
        ({"output": [1.0, float("nan")]}, "the memory of output must be a finite number"),
        ({"released_at_input": 1.5}, "released_at_input must be a part from 0 to 1, not 1.5"),
    ],
)
def test_sizes_that_are_none(sizes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        Memory(**sizes)


# --- against a plain count of intervals ----------------------------------------------------------


@st.composite
def _timelines(draw: st.DrawFn) -> Timeline:
    name, p = draw(st.sampled_from(["gpipe", "1f1b", "zb_h1", "interleaved_1f1b"])), draw(st.integers(1, 4))
    schedule = load(name, p=p, m=p * draw(st.integers(1, 2)))
    sizes = st.lists(st.integers(0, 5).map(float), min_size=schedule.stages, max_size=schedule.stages)
    memory = Memory(activation=draw(sizes), output=draw(sizes), parameters=draw(sizes), keeps_sent=draw(st.booleans()))
    costs = Costs(latency=draw(st.sampled_from([0.0, 0.5, 3.0])), memory=memory)
    return simulate(schedule, costs, draw(st.sampled_from(["buffered", "capacity=2", "pair", "rank"])))


def _intervals(timeline: Timeline, rank: int) -> list[tuple[float, float, float]]:
    """All that a rank holds: from, to, how much. Operations take time, so nothing is taken and freed at once."""
    schedule, memory = timeline.schedule, timeline.costs.memory
    at = {(k.kind, k.stage, k.microbatch): i for i, k in enumerate(map(schedule.operation, range(len(schedule))))}
    found = []
    for (kind, stage, microbatch), index in at.items():
        if schedule.rank[index] == rank and kind is Kind.F:
            last = at.get((Kind.W, stage, microbatch), at.get((Kind.B, stage, microbatch)))
            found.append((timeline.start[index], timeline.end[last], memory.activation[stage]))
    moves = timeline.moves
    for producer, consumer, end in zip(moves.producer, moves.consumer, moves.end, strict=True):
        if schedule.rank[producer] == rank:
            stage = schedule.stage[producer if schedule.kind[producer] == Kind.F else consumer]
            until = np.inf if memory.keeps_sent else end
            found.append((timeline.start[producer], until, memory.output[stage]))
    return found


@given(_timelines())
@settings(max_examples=60, deadline=None)
def test_memory_is_the_sum_of_what_lives(timeline: Timeline) -> None:
    schedule, memory = timeline.schedule, timeline.costs.memory
    for rank in range(schedule.ranks):
        intervals = _intervals(timeline, rank)
        standing = sum(memory.parameters[stage] for stage in schedule.placement.owned[rank])

        def held(time: float, intervals=intervals, standing=standing) -> float:
            return standing + sum(size for start, end, size in intervals if start <= time < end)

        for index in range(schedule.offsets[rank], schedule.offsets[rank + 1]):
            if schedule.kind[index] != Kind.OPT:
                assert timeline.memory[index] == held(timeline.start[index])
        times, curve = timeline.memory_curve(rank)
        assert curve.tolist() == [held(time) for time in times]
        assert curve.max() == timeline.peak_memory[rank]


def test_activations_are_what_the_default_counts() -> None:
    schedule: Schedule = load("dualpipev", p=4, m=8)
    timeline = simulate(schedule)
    assert timeline.costs.memory == ACTIVATIONS
    assert timeline.peak_memory == timeline.peak_activations == (9, 9, 9, 9)
