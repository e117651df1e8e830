"""Where the boxes of the DOT source lie, against the timeline."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from drawn import busy_shares, dot_source

from piper_dsl.ir.operations import Kind
from piper_dsl.simulate import Costs

CLOSE = 0.02
"""Points that rounding in the DOT source may cost."""

CASES = [
    ("gpipe", {}, {"p": 4, "m": 8}),
    ("1f1b", {"B": 1.7, "latency": 0.3}, {"p": 4, "m": 8}),
    ("interleaved_1f1b", {"F": 0.013, "B": 0.029}, {"p": 4, "m": 8, "v": 3}),
    ("zb_h1", {"I": 1.1, "W": 0.6, "OPT": 2.5}, {"p": 3, "m": 12}),
]

OVERLAPPED = """
schedule "overlapped"
ranks 1
microbatches 2
rank 0 { F[0]  F[1] & B[0]  B[1] }
"""


def operations(timeline, nodes):
    """The node of every operation, in the order of the schedule."""
    return [nodes[f"{timeline.schedule.operation(i)} #{i}"] for i in range(len(timeline.schedule))]


def test_gpipe_with_unit_costs(make_timeline, read_nodes):
    timeline = make_timeline("gpipe", Costs(F=1, B=1), p=4, m=4)
    nodes = read_nodes(dot_source(timeline))
    unit = nodes["lane 0"].width / 14
    at = {name.split(" #")[0]: node for name, node in nodes.items()}
    assert at["0F0"].left == pytest.approx(0, abs=CLOSE)
    assert at["3F0"].left == pytest.approx(3 * unit, abs=CLOSE)
    assert at["0B0"].left == pytest.approx(10 * unit, abs=CLOSE)
    assert at["0B3"].right == pytest.approx(14 * unit, abs=CLOSE)
    assert max(node.right for name, node in at.items() if name[1] in "FB") == pytest.approx(14 * unit, abs=CLOSE)


@pytest.mark.parametrize(("name", "costs", "parameters"), CASES)
def test_boxes_are_to_scale_and_in_their_lane(make_timeline, read_nodes, name, costs, parameters):
    timeline = make_timeline(name, Costs(**costs), **parameters)
    nodes = read_nodes(dot_source(timeline))
    unit = nodes["lane 0"].width / timeline.makespan
    for index, node in enumerate(operations(timeline, nodes)):
        start, end = timeline.start[index], timeline.end[index]
        lane = nodes[f"lane {timeline.schedule.rank[index]}"]
        assert (node.top, node.bottom) == pytest.approx((lane.top, lane.bottom), abs=CLOSE)
        if end > start:
            assert node.left == pytest.approx(start * unit, abs=CLOSE)
            assert node.width == pytest.approx((end - start) * unit, abs=CLOSE)
        else:
            assert node.left < start * unit < node.right < node.left + 2


@pytest.mark.parametrize(("name", "costs", "parameters"), CASES)
def test_no_box_starts_before_what_it_needs_ends(make_timeline, read_nodes, name, costs, parameters):
    timeline = make_timeline(name, Costs(**costs), **parameters)
    boxes = operations(timeline, read_nodes(dot_source(timeline)))
    needs = timeline.schedule.needs
    lasting = timeline.end > timeline.start
    checked = 0
    for index in np.flatnonzero(lasting).tolist():
        for needed in needs.of(index).tolist():
            assert boxes[index].left >= boxes[needed].right - CLOSE
            checked += 1
    assert checked > len(timeline.schedule) / 2


@pytest.mark.parametrize(("name", "costs", "parameters"), CASES)
def test_boxes_of_a_rank_follow_each_other(make_timeline, read_nodes, name, costs, parameters):
    timeline = make_timeline(name, Costs(**costs), **parameters)
    boxes = operations(timeline, read_nodes(dot_source(timeline)))
    for first, end in zip(timeline.schedule.offsets, timeline.schedule.offsets[1:], strict=False):
        row = [boxes[i] for i in range(first, end) if timeline.end[i] > timeline.start[i]]
        assert all(left.right <= right.left + CLOSE for left, right in itertools.pairwise(row))


def test_lanes_go_down_rank_by_rank(make_timeline, read_nodes):
    nodes = read_nodes(dot_source(make_timeline("1f1b", p=12, m=12)))
    lanes = [nodes[f"lane {rank}"] for rank in range(12)]
    assert all(upper.bottom > lower.top for upper, lower in itertools.pairwise(lanes))


def test_overlapped_operations_share_the_height_of_the_lane(make_timeline, read_nodes):
    nodes = read_nodes(dot_source(make_timeline(OVERLAPPED)))
    forward, backward, lane = nodes["0F1 #1"], nodes["0B0 #2"], nodes["lane 0"]
    assert (forward.left, forward.right) == pytest.approx((backward.left, backward.right))
    assert forward.bottom == pytest.approx(backward.top, abs=CLOSE)
    assert (forward.top, backward.bottom) == pytest.approx((lane.top, lane.bottom), abs=CLOSE)


def test_ticks_stand_at_their_time(make_timeline, read_nodes):
    timeline = make_timeline("1f1b", p=4, m=8)
    nodes = read_nodes(dot_source(timeline))
    unit = nodes["lane 0"].width / timeline.makespan
    ticks = [name for name in nodes if name.startswith("tick ")]
    assert len(ticks) > 5
    for name in ticks:
        middle = nodes[name].left + nodes[name].width / 2
        assert middle == pytest.approx(float(name.split()[1]) * unit, abs=CLOSE)


def test_bars_fill_what_the_ranks_are_busy(make_timeline, read_nodes):
    timeline = make_timeline("zb_h1", p=8, m=1000)
    nodes = read_nodes(dot_source(timeline))
    assert "24008 operations are too many or too short to show each" in nodes["fact 1"].attributes["label"]
    assert not any("#" in name for name in nodes)
    for rank in timeline.ranks:
        lane = nodes[f"lane {rank.rank}"]
        bars = [node for name, node in nodes.items() if f" on rank {rank.rank} in bin " in name]
        filled = sum(bar.width * bar.height for bar in bars) / (lane.width * lane.height)
        assert filled == pytest.approx(rank.busy / timeline.makespan, abs=0.002)
        assert all(lane.bottom - CLOSE <= bar.bottom and bar.top <= lane.top + CLOSE for bar in bars)


def test_a_picture_that_gets_too_wide_shows_bars(make_timeline):
    assert "too many or too short to show" not in dot_source(make_timeline("1f1b", p=2, m=300))
    assert "too many or too short to show" in dot_source(make_timeline("1f1b", p=2, m=3000))


def test_busy_shares_add_up_to_the_time_of_each_kind(make_timeline):
    timeline = make_timeline(OVERLAPPED)
    shares = busy_shares(timeline, 7)
    assert shares.shape == (1, len(Kind), 7)
    assert shares.sum() * timeline.makespan / 7 == pytest.approx(timeline.ranks[0].busy)
    assert shares[0, Kind.F].sum() * timeline.makespan / 7 == pytest.approx(1 + 1.5)


def test_busy_shares_of_one_bin_each(make_timeline):
    shares = busy_shares(make_timeline("gpipe", Costs(F=1, B=1), p=2, m=1), 4)
    assert shares[0, Kind.F].tolist() == pytest.approx([1, 0, 0, 0])
    assert shares[0, Kind.B].tolist() == pytest.approx([0, 0, 0, 1])
    assert shares[1, Kind.F].tolist() == pytest.approx([0, 1, 0, 0])
    assert shares[1, Kind.B].tolist() == pytest.approx([0, 0, 1, 0])
