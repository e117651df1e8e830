"""The trace, against the Trace Event Format and the timeline.

Every event has the fields its phase demands, slices of a thread nest, and every end of a flow lies within the one
slice it belongs to: what Perfetto's importer asks for.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict

import pytest
from drawn import scenes

from piper_dsl.draw import DrawError, View, draw, find_scene
from piper_dsl.draw.trace import trace_json
from piper_dsl.ir.operations import Kind
from piper_dsl.simulate import Costs, simulate
from piper_dsl.simulate.measured import measured_timeline

CASES = [
    ("1f1b", {"latency": 0.4}, {"p": 4, "m": 6}),
    ("interleaved_1f1b", {"F": 0.0131, "B": 0.0277}, {"p": 3, "m": 6}),
    ("dualpipe", {}, {"p": 4, "m": 8}),
]
WRITTEN = """
schedule "written"
ranks 2
microbatches 3
rank 0 { for i in 0:3 { F[i] SEND_F[i]@0 } for i in 0:3 { RECV_B[i]@0 B[i] } }
rank 1 { for i in 0:3 { RECV_F[i]@1 F[i] B[i] SEND_B[i]@1 } }
"""
FIELDS = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
    "C": {"name", "pid", "ts", "args"},
    "M": {"name", "pid", "args"},
}


def read(*timelines, **view):
    document = json.loads(trace_json([find_scene(timeline, View(**view)) for timeline in timelines]))
    phases = defaultdict(list)
    for event in document["traceEvents"]:
        assert FIELDS[event["ph"]] <= set(event)
        assert event.get("dur", 0) >= 0
        phases[event["ph"]].append(event)
    return phases


@pytest.mark.parametrize(("name", "costs", "parameters"), CASES)
def test_every_operation_is_a_slice(make_timeline, name, costs, parameters):
    timeline = make_timeline(name, Costs(**costs), **parameters)
    slices = read(timeline)["X"]
    assert len(slices) == len(timeline.schedule)
    for index, event in enumerate(slices):
        assert event["args"]["operation"] == str(timeline.schedule.operation(index))
        assert event["pid"] == timeline.schedule.rank[index]
        assert event["ts"] == pytest.approx(timeline.start[index] * 1000, abs=0.001)
        assert event["dur"] == pytest.approx((timeline.end - timeline.start)[index] * 1000, abs=0.001)
        assert event["args"]["written at"].startswith(f"{name}.pipe:")


@pytest.mark.parametrize(("name", "costs", "parameters"), CASES)
def test_slices_of_a_thread_do_not_cross(make_timeline, name, costs, parameters):
    threads = defaultdict(list)
    for event in read(make_timeline(name, Costs(**costs), **parameters))["X"]:
        threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in threads.values():
        slices.sort()
        assert all(one[1] <= other[0] + 0.002 for one, other in itertools.pairwise(slices))


def test_transfers_that_go_on_at_once_have_threads_of_their_own(make_timeline):
    timeline = simulate(make_timeline(WRITTEN).schedule, Costs(latency=3), "direction")
    slices = [event for event in read(timeline)["X"] if event["name"].startswith(("SEND", "RECV"))]
    assert len(slices) == 12
    assert {event["tid"] for event in slices} == {100, 101}
    for one, other in itertools.combinations(slices, 2):
        if (one["pid"], one["tid"]) == (other["pid"], other["tid"]):
            assert one["ts"] + one["dur"] <= other["ts"] or other["ts"] + other["dur"] <= one["ts"]


@pytest.mark.parametrize(("name", "costs", "parameters"), CASES)
def test_flows_lead_from_the_producer_to_the_consumer(make_timeline, name, costs, parameters):
    timeline = make_timeline(name, Costs(**costs), **parameters)
    phases, schedule = read(timeline), timeline.schedule

    def around(end):
        """The operation whose slice is around an end of a flow."""
        at = [e for e in phases["X"] if (e["pid"], e["tid"]) == (end["pid"], end["tid"]) and e["dur"]]
        found = [e for e in at if e["ts"] < end["ts"] < e["ts"] + e["dur"]]
        assert len(found) == 1
        return found[0]["args"]["operation"]

    starts, ends = ({end["id"]: around(end) for end in phases[phase]} for phase in "sf")
    assert len(starts) == len(phases["s"]) == len(phases["f"])
    expected = {
        (str(schedule.operation(source)), str(schedule.operation(index)))
        for index in range(len(schedule))
        for source in timeline.schedule.needs.of(index).tolist()
        if schedule.rank[source] != schedule.rank[index] and schedule.kind[index] != Kind.OPT
    }
    assert {(starts[number], ends[number]) for number in starts} == expected


def test_counters_reach_the_peaks(make_timeline):
    timeline = make_timeline("zb_h1", p=4, m=8)
    held = defaultdict(list)
    for event in read(timeline)["C"]:
        held[event["pid"]].append(event["args"]["held"])
    assert tuple(max(held[rank]) for rank in range(4)) == timeline.peak_activations
    assert all(levels[-1] == 0 for levels in held.values())


def test_a_window_and_ranks(make_timeline):
    timeline = make_timeline("1f1b", p=4, m=8)
    phases = read(timeline, start=10.0, end=20.0, ranks=(3, 1))
    assert {event["args"]["name"] for event in phases["M"] if event["name"] == "process_name"} == {"rank 1", "rank 3"}
    assert all(event["ts"] < 20_000 and event["ts"] + event["dur"] > 10_000 for event in phases["X"])
    assert all(10_000 <= event["ts"] <= 20_000 for event in phases["C"])


def test_several_timelines_have_processes_and_flows_of_their_own(make_timeline):
    phases = read(make_timeline("1f1b", p=2, m=2), make_timeline("gpipe", p=2, m=2))
    assert {event["pid"] for event in phases["X"]} == {0, 1, 2, 3}
    assert len({event["id"] for event in phases["s"]}) == len(phases["s"]) == 8
    names = [event["args"]["name"] for event in phases["M"] if event["name"] == "process_name"]
    assert names == ["rank 0", "rank 1", "GPipe  p=2 m=2 v=1: rank 0", "GPipe  p=2 m=2 v=1: rank 1"]


def test_a_file(make_timeline, tmp_path):
    draw(make_timeline("1f1b", p=2, m=2), tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text())["displayTimeUnit"] == "ms"
    with pytest.raises(DrawError, match="names no format"):
        draw(make_timeline("1f1b", p=2, m=2), tmp_path / "a.jsonl")


@pytest.mark.parametrize("unit", [1e-12, 1e-6, 1.0, 1e6, 1e15])
def test_times_of_any_unit_stay_apart_and_within_64_bits(make_timeline, unit):
    timeline = make_timeline("1f1b", Costs(F=1.0 * unit, B=2.0 * unit), p=4, m=8)
    slices = read(timeline)["X"]
    scale = slices[1]["dur"]  # of a forward, which takes 1
    assert 1 <= scale < 1e16
    for index, event in enumerate(slices):
        assert event["ts"] == pytest.approx(timeline.start[index] / unit * scale, rel=1e-3)
    assert max(event["ts"] + event["dur"] for event in slices) * 1000 < 2**63


def test_a_measured_second_is_a_second(make_timeline):
    predicted = make_timeline("1f1b", Costs(F=0.01, B=0.02), p=2, m=4)
    measured = measured_timeline(predicted.schedule, predicted.start, predicted.end, predicted.costs)
    for timelines in ([measured], [predicted, measured]):
        assert {event["dur"] for event in read(*timelines)["X"]} == {0.0, 10_000.0, 20_000.0}


def test_a_short_window_of_long_operations_has_finite_times(make_timeline):
    timeline = make_timeline("1f1b", Costs(F=1e100), p=2, m=2)
    assert "Infinity" not in trace_json(scenes(timeline, end=1e-240))
