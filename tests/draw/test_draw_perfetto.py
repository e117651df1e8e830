"""The trace in Perfetto's own trace processor: what was drawn is counted in SQL, and nothing was lost in the import."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from drawn import scenes
from trace_processor import TraceProcessor, served

from piper_dsl.draw.trace import trace_json
from piper_dsl.ir.operations import Kind
from piper_dsl.simulate import Costs, simulate

WRITTEN = """
ranks 2
microbatches 3
rank 0 { for i in 0:3 { F[i] SEND_F[i]@0 } for i in 0:3 { RECV_B[i]@0 B[i] } }
rank 1 { for i in 0:3 { RECV_F[i]@1 F[i] B[i] SEND_B[i]@1 } }
"""
ON_RANKS = """select process.name as rank, thread.name as thread, slice.* from slice
    join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served() as found:
        yield found


@pytest.fixture
def load(browser: Any, address: str) -> Iterator[Callable[..., TraceProcessor]]:
    """Loads the trace of timelines; what the import complains of fails the test."""
    page = browser.new_page()
    page.goto(address)

    def loaded(*timelines: Any, **view: Any) -> TraceProcessor:
        processor = TraceProcessor(page, trace_json(scenes(*timelines, **view)))
        assert processor.query("select name, value from stats where severity != 'info' and value > 0") == []
        return processor

    yield loaded
    page.close()


@pytest.mark.parametrize(
    ("name", "costs"), [("1f1b", Costs(latency=0.4)), ("zb_v", Costs(F=0.0131, I=0.02)), ("dualpipe", Costs())]
)
def test_slices_flows_and_counters_are_those_of_the_timeline(name, costs, make_timeline, load) -> None:
    timeline = make_timeline(name, costs, p=4, m=8)
    schedule, processor = timeline.schedule, load(timeline)
    assert processor.query("select count(*) as n from slice") == [(len(schedule),)]
    assert processor.query("select count(*) as n from flow") == [(len(timeline.moves.producer),)]
    expected = {}
    for index in range(len(schedule)):
        key = (f"rank {schedule.rank[index]}", str(schedule.operation(index)))
        expected[key] = (timeline.start[index] * 1e6, (timeline.end - timeline.start)[index] * 1e6)
    found = processor.query(f"select rank, extract_arg(arg_set_id, 'args.operation') as o, ts, dur from ({ON_RANKS})")
    assert {(rank, operation) for rank, operation, *_ in found} == set(expected)
    assert all((ts, dur) == pytest.approx(expected[rank, said], abs=2) for rank, said, ts, dur in found)
    peaks = processor.query(
        """select process.name as rank, process_counter_track.name as counted, max(value) as peak from counter
        join process_counter_track on counter.track_id = process_counter_track.id join process using (upid)
        group by rank, counted order by rank"""
    )
    assert peaks == [(f"rank {rank}", "activations held", peak) for rank, peak in enumerate(timeline.peak_activations)]


def test_flows_lead_from_rank_to_rank(make_timeline, load) -> None:
    timeline = make_timeline("1f1b", p=3, m=4)
    found = load(timeline).query(
        f"""with at as ({ON_RANKS}) select one.rank as a, one.name as b, other.rank as c, other.name as d from flow
        join at as one on flow.slice_out = one.id join at as other on flow.slice_in = other.id"""
    )
    forward = {(f"rank {r}", f"F{i}", f"rank {r + 1}", f"F{i}") for r in range(2) for i in range(4)}
    backward = {(f"rank {r + 1}", f"B{i}", f"rank {r}", f"B{i}") for r in range(2) for i in range(4)}
    assert set(found) == forward | backward
    assert len(found) == 16


def test_written_transfers_and_windows(make_timeline, load) -> None:
    timeline = simulate(make_timeline(WRITTEN).schedule, Costs(latency=3), "direction")
    assert load(timeline).query(f"select thread, count(*) as n from ({ON_RANKS}) group by thread order by thread") == [
        ("operations", 12),
        ("transfers", 12),
    ]
    cut = make_timeline("1f1b", p=4, m=8)
    inside = (cut.end > 10) & (cut.start < 20) & np.isin(cut.schedule.rank, (1, 3)) & (cut.schedule.kind != Kind.OPT)
    processor = load(cut, start=10.0, end=20.0, ranks=(1, 3))
    assert processor.query(f"select rank, count(*) as n from ({ON_RANKS}) group by rank order by rank") == [
        (f"rank {rank}", int((inside & (cut.schedule.rank == rank)).sum())) for rank in (1, 3)
    ]


def test_two_timelines(make_timeline, load) -> None:
    processor = load(make_timeline("1f1b", p=2, m=2), make_timeline("gpipe", p=2, m=2))
    assert processor.query(f"select rank, count(*) as n from ({ON_RANKS}) group by rank order by rank") == [
        ("GPipe  p=2 m=2 v=1: rank 0", 5),
        ("GPipe  p=2 m=2 v=1: rank 1", 5),
        ("rank 0", 5),
        ("rank 1", 5),
    ]
