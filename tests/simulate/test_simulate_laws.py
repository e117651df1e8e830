"""Laws of the clock, for random sizes and random costs."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from piper_dsl.ir.operations import Kind
from piper_dsl.ir.schedule import Schedule
from piper_dsl.library import load
from piper_dsl.simulate import Costs, Timeline, simulate

COSTED = ("F", "B", "I", "W", "OPT")


@st.composite
def _schedules(draw: st.DrawFn) -> Schedule:
    name = draw(st.sampled_from(["gpipe", "1f1b", "interleaved_1f1b", "zb_h1"]))
    p, m = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    if name == "interleaved_1f1b":
        return load(name, p=p, m=p * draw(st.integers(1, 2)), v=draw(st.integers(1, 3)))
    return load(name, p=p, m=m)


@st.composite
def _costed(draw: st.DrawFn) -> tuple[Schedule, dict[str, list[float]], float]:
    """A schedule, costs per kind and stage in quarters (exact in floating point), and a latency."""
    schedule = draw(_schedules())
    quarter = st.integers(0, 20).map(lambda n: n / 4)
    per_stage = st.lists(quarter, min_size=schedule.stages, max_size=schedule.stages)
    return schedule, draw(st.fixed_dictionaries(dict.fromkeys(COSTED, per_stage))), draw(quarter)


def _run(schedule: Schedule, kinds: dict[str, list[float]], latency: float) -> Timeline:
    return simulate(schedule, Costs(latency=latency, **kinds))


@given(_costed())
@settings(max_examples=70, deadline=None)
def test_no_makespan_beats_a_bound(drawn) -> None:
    timeline = _run(*drawn)
    assert timeline.makespan >= timeline.bounds.busiest_rank
    assert timeline.makespan >= timeline.bounds.chain
    assert timeline.makespan >= max(rank.busy for rank in timeline.ranks)


@given(_costed(), st.data())
@settings(max_examples=70, deadline=None)
def test_raising_a_cost_never_lowers_the_makespan(drawn, data: st.DataObject) -> None:
    schedule, kinds, latency = drawn
    before = _run(schedule, kinds, latency).makespan
    kind = data.draw(st.sampled_from([*COSTED, "latency"]))
    if kind == "latency":
        assert _run(schedule, kinds, latency + 1.25).makespan >= before
    else:
        stage = data.draw(st.integers(0, schedule.stages - 1))
        raised = [cost + 1.25 * (s == stage) for s, cost in enumerate(kinds[kind])]
        assert _run(schedule, {**kinds, kind: raised}, latency).makespan >= before


@given(_costed(), st.booleans())
@settings(max_examples=70, deadline=None)
def test_the_critical_path_is_contiguous_and_as_long_as_the_makespan(drawn, instant: bool) -> None:
    schedule, kinds, latency = drawn
    latency = 0.0 if instant else latency
    timeline = _run(schedule, kinds, latency)
    index = {schedule.operation(k): k for k in range(len(schedule))}
    path = [index[operation] for operation in timeline.critical_path]
    assert timeline.start[path[0]] == 0
    assert timeline.end[path[-1]] == timeline.makespan
    hops = 0
    for one, two in pairwise(path):
        hop = schedule.rank[one] != schedule.rank[two]
        hops += hop
        assert timeline.start[two] == timeline.end[one] + latency * hop
    assert sum(timeline.end[k] - timeline.start[k] for k in path) + hops * latency == timeline.makespan


@given(_costed())
@settings(max_examples=50, deadline=None)
def test_nothing_starts_before_what_it_needs_or_while_its_rank_is_busy(drawn) -> None:
    """The needs are written out anew here, by name."""
    schedule, kinds, latency = drawn
    timeline = _run(schedule, kinds, latency)
    index = {schedule.operation(k): k for k in range(len(schedule))}
    at = {(op.kind, op.stage, op.microbatch): k for op, k in index.items()}
    for (kind, stage, i), k in at.items():
        needs: list[tuple[Kind, int, int | None]] = []
        if kind == Kind.F:
            needs = [(Kind.F, stage - 1, i)]
        elif kind in (Kind.B, Kind.I):
            needs = [(Kind.F, stage, i), (Kind.B, stage + 1, i), (Kind.I, stage + 1, i)]
        elif kind == Kind.W:
            needs = [(Kind.I, stage, i)]
        elif kind == Kind.OPT:
            needs = [(half, stage, j) for half in (Kind.B, Kind.W) for j in range(schedule.microbatches)]
        arrivals = [
            timeline.end[at[need]] + latency * (schedule.rank[at[need]] != schedule.rank[k])
            for need in needs
            if need in at
        ]
        first = k in schedule.offsets[:-1]
        free = 0.0 if first else timeline.end[k - 1]
        # As soon as possible, and not sooner.
        assert timeline.start[k] == max([free, *arrivals])
        assert timeline.end[k] == timeline.start[k] + kinds[kind.name][stage]


@given(_costed())
@settings(max_examples=25, deadline=None)
def test_the_same_every_time(drawn) -> None:
    one, two = _run(*drawn), _run(*drawn)
    assert (one.start.tolist(), one.critical_path, one.bounds) == (two.start.tolist(), two.critical_path, two.bounds)


def test_the_limiting_stage_is_found_in_any_unit() -> None:
    for unit in (1e-12, 1.0, 1e12):
        schedule = load("1f1b", p=3, m=4)
        slow = simulate(schedule, Costs(F=[unit, 1.5 * unit, unit], B=2 * unit))
        assert slow.limiting_stage == 1
        assert simulate(schedule, Costs(F=unit, B=2 * unit)).limiting_stage is None
