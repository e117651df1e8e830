"""What a reader may ask for: arrows, the critical path, memory, a window, other colours; where they lie."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from drawn import dot_source, scenes

from piper_dsl.draw import DrawError, View, find_scene, timeline_text
from piper_dsl.draw.palette import paint
from piper_dsl.draw.theme import DARK, LIGHT, PRINT
from piper_dsl.ir.operations import Kind
from piper_dsl.simulate import Costs, simulate

CLOSE = 0.02
_EDGE = re.compile(r'^\t"([^"]+)" -> "([^"]+)" \[.* pos="e,([-\d.]+),([-\d.]+) ([-\d.]+),([-\d.]+) ', re.MULTILINE)

CASES = [
    ("1f1b", {"latency": 0.4}, {"p": 4, "m": 6}),
    ("interleaved_1f1b", {"B": 1.5}, {"p": 3, "m": 6}),
    ("zb_v", {"W": 0.5}, {"p": 2, "m": 6}),
    ("dualpipe", {}, {"p": 4, "m": 8}),
]


def read_arrows(dot):
    """(producer, consumer): tail and head of the arrow."""
    return {
        (source, target): ((float(from_x), float(from_y)), (float(x), float(y)))
        for source, target, x, y, from_x, from_y in _EDGE.findall(dot)
    }


@pytest.mark.parametrize(("name", "costs", "parameters"), CASES)
def test_arrows_lead_from_the_end_of_a_box_to_the_lane_of_what_needs_it(
    make_timeline, read_nodes, name, costs, parameters
):
    timeline = make_timeline(name, Costs(**costs), **parameters)
    schedule, needs = timeline.schedule, timeline.schedule.needs
    dot = dot_source(timeline, transfers=True)
    nodes = read_nodes(dot)
    unit, drawn = nodes["lane 0"].width / timeline.makespan, set()
    for (source, target), ((from_x, from_y), (x, y)) in read_arrows(dot).items():
        one, other = nodes[source], nodes[target]
        down = one.bottom > other.bottom
        assert from_x == pytest.approx(one.right, abs=2)
        assert x == pytest.approx(one.right + timeline.costs.latency * unit, abs=2)
        assert x <= other.left + 2
        assert from_y == pytest.approx(one.bottom if down else one.top, abs=14)
        assert y == pytest.approx(other.top if down else other.bottom, abs=14)
        drawn.add((int(source.split("#")[1]), int(target.split("#")[1])))
    assert drawn == {
        (source, index)
        for index in range(len(schedule))
        for source in needs.of(index).tolist()
        if schedule.rank[source] != schedule.rank[index] and schedule.kind[index] != Kind.OPT
    }
    assert drawn


def test_arrows_show_how_long_a_message_waits_for_its_transport(make_timeline, read_nodes):
    schedule = make_timeline("interleaved_1f1b", p=4, m=8).schedule
    timeline = simulate(schedule, Costs(latency=0.5), "rank", "eager")
    longest = (timeline.moves.start - timeline.end[timeline.moves.producer]).max()
    assert longest > 0
    dot = dot_source(timeline, transfers=True)
    unit, arrows = read_nodes(dot)["lane 0"].width / timeline.makespan, read_arrows(dot)
    names = [f"{schedule.operation(index)} #{index}" for index in range(len(schedule))]
    for producer, consumer, start, end in zip(*vars(timeline.moves).values(), strict=True):
        (tail, _), (head, _) = arrows[names[producer], names[consumer]]
        assert tail == pytest.approx(start * unit, abs=2)
        assert head == pytest.approx(end * unit, abs=2)


def test_no_arrow_without_being_asked(make_timeline):
    assert "->" not in dot_source(make_timeline("1f1b", p=2, m=2))


def test_too_many_arrows_are_left_out_and_said(make_timeline):
    dot = dot_source(make_timeline("1f1b", p=16, m=70), transfers=True)
    assert "->" not in dot
    assert "2100 transfers are too many to draw: choose a window" in dot
    assert "->" in dot_source(make_timeline("1f1b", p=16, m=70), transfers=True, end=60.0)


def test_the_critical_path_is_outlined(make_timeline, read_nodes):
    timeline = make_timeline("1f1b", Costs(latency=0.5), p=4, m=8)
    nodes = read_nodes(dot_source(timeline, critical_path=True))
    outlined = {name.removeprefix("critical ") for name in nodes if name.startswith("critical ")}
    assert len(outlined) == len(timeline.critical_path)
    assert {name.split(" #")[0] for name in outlined} == set(map(str, timeline.critical_path))
    for name in outlined:
        box, outline = nodes[name], nodes[f"critical {name}"]
        assert outline.left == pytest.approx(box.left, abs=1)
        assert outline.top == pytest.approx(box.top, abs=1)


def test_memory_bars_lie_under_their_lane_to_one_scale(make_timeline, read_nodes):
    timeline = make_timeline("1f1b", p=4, m=8)
    nodes = read_nodes(dot_source(timeline, memory=True))
    height = {}
    for rank in range(4):
        bars = [node for name, node in nodes.items() if name.startswith(f"memory of rank {rank} ")]
        assert all(bar.top < nodes[f"lane {rank}"].bottom for bar in bars)
        assert rank == 3 or all(bar.bottom > nodes[f"lane {rank + 1}"].top for bar in bars)
        height[rank] = max(bar.height for bar in bars)
    assert [height[rank] / height[3] for rank in range(4)] == pytest.approx([4, 3, 2, 1], abs=0.01)
    assert nodes["held 2"].attributes["label"] == r"holds 2 at most\r"


def test_memory_of_a_long_schedule_keeps_its_peak(make_timeline, read_nodes):
    nodes = read_nodes(dot_source(make_timeline("1f1b", p=4, m=6000), memory=True))
    bars = [node for name, node in nodes.items() if name.startswith("memory of rank 0 ")]
    assert len(bars) <= 300
    assert max(bar.height for bar in bars) == pytest.approx(24 * 0.75 * 0.86, abs=CLOSE)


def test_a_window_cuts_boxes_and_leaves_out_the_rest(make_timeline, read_nodes):
    timeline = make_timeline("1f1b", p=4, m=8)
    nodes = read_nodes(dot_source(timeline, start=10.5, end=20.0, ranks=(3, 1)))
    unit = nodes["lane 1"].width / 9.5
    drawn = [int(name.split("#")[1]) for name in nodes if "#" in name]
    inside = (timeline.end > 10.5) & (timeline.start < 20.0) & np.isin(timeline.schedule.rank, (1, 3))
    assert sorted(drawn) == np.flatnonzero(inside).tolist()
    for index in drawn:
        node = nodes[f"{timeline.schedule.operation(index)} #{index}"]
        assert node.left == pytest.approx((max(timeline.start[index], 10.5) - 10.5) * unit, abs=CLOSE)
        assert node.right == pytest.approx((min(timeline.end[index], 20.0) - 10.5) * unit, abs=CLOSE)
    assert nodes["lane 3"].bottom > nodes["lane 1"].top
    assert "lane 0" not in nodes
    assert nodes["fact 1"].attributes["label"] == r"shown: 10.5 to 20 of 33, ranks 3 1\l"


def test_a_window_of_text(make_timeline):
    view = View(start=10.5, end=20.0, ranks=(1,))
    plain = timeline_text(make_timeline("1f1b", p=4, m=8), view=view).plain
    assert [line for line in plain.splitlines() if line.startswith("rank")] == [
        "rank 1 │── B1───────── F4─── B2───────── F5─── B3───────── F6─── │"
    ]


def test_a_window_of_a_big_schedule_shows_single_operations(make_timeline, read_nodes):
    timeline = make_timeline("1f1b", p=16, m=2000)
    nodes = read_nodes(dot_source(timeline, start=1000.0, end=1040.0, ranks=(0, 1)))
    assert sum("#" in name for name in nodes) == 2 * 27


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ({"start": 40.0}, "there is nothing to draw from 40 to 33"),
        ({"start": 33.0}, "there is nothing to draw from 33 to 33"),
        ({"start": float("nan")}, "there is nothing to draw from nan to 33"),
        ({"end": float("nan")}, "there is nothing to draw from 0 to nan"),
        ({"start": 5.0, "end": 5.0}, "there is nothing to draw from 5 to 5"),
        ({"start": 5.0, "end": 4.0}, "there is nothing to draw from 5 to 4"),
        ({"ranks": (0, 4)}, "there is no rank 4 to draw"),
        ({"ranks": (-1,)}, "there is no rank -1 to draw"),
        ({"ranks": ()}, "there are no ranks to draw"),
        ({"end": 1e-300}, "from 0 to 1e-300 is too short to be drawn"),
    ],
)
def test_windows_that_hold_nothing(make_timeline, view, message):
    with pytest.raises(DrawError) as caught:
        scenes(make_timeline("1f1b", p=4, m=8), **view)
    assert caught.value.message == message


def test_halves_of_a_slot_are_one_box(make_timeline, read_nodes):
    timeline = make_timeline("dualpipe", p=4, m=8)
    nodes = read_nodes(dot_source(timeline))
    slots = [name.removeprefix("slot of ") for name in nodes if name.startswith("slot of ")]
    assert len(slots) == int(timeline.schedule.joined.sum())
    for name in slots:
        outline, half = nodes[f"slot of {name}"], nodes[name]
        assert half.attributes["penwidth"] == "0"
        assert (outline.left, outline.top) == pytest.approx((half.left, half.top), abs=CLOSE)
        assert outline.height == pytest.approx(2 * half.height, abs=CLOSE)


def test_the_legend_tells_costs_and_transport(make_timeline, read_nodes):
    nodes = read_nodes(dot_source(make_timeline("dualpipe", Costs(F=[1, 2, 1, 2], latency=0.5), p=4, m=8)))
    said = nodes["costs 0"].attributes["label"]
    assert said == r"costs F 1 to 2, B 2, I 1, W 1, F&amp;B 3 to 4 · latency 0.5 · transport buffered\l"


@pytest.mark.parametrize("theme", [LIGHT, DARK, PRINT], ids=lambda theme: theme.name)
def test_every_theme_colours_page_and_boxes(make_timeline, read_nodes, theme):
    dot = dot_source(make_timeline("zb_h1", p=2, m=4), theme=theme)
    nodes = read_nodes(dot)
    assert f'bgcolor="{theme.page}"' in dot
    assert nodes["0F0 #0"].attributes["fillcolor"] == paint(Kind.F, theme=theme).fill
    assert nodes["lane 0"].attributes["fillcolor"] == theme.lane


def test_print_is_grey():
    for kind, chunk in itertools.product((Kind.F, Kind.B, Kind.I, Kind.W, Kind.R, Kind.OPT), range(3)):
        fill = paint(kind, chunk, 3, PRINT).fill
        assert fill[1:3] == fill[3:5] == fill[5:7]


def test_the_window_of_another_timeline_is_its_own(make_timeline):
    one, other = make_timeline("1f1b", p=2, m=2), make_timeline("1f1b", p=2, m=4)
    first, second = (find_scene(timeline, View()) for timeline in (one, other))
    assert (first.end, second.end) == (one.makespan, other.makespan)


def test_what_bars_cannot_show_is_said(make_timeline):
    timeline = make_timeline("1f1b", p=16, m=512)
    assert "left out" not in dot_source(timeline)
    assert "transfers left out: choose a window" in dot_source(timeline, transfers=True)
    assert "transfers and the critical path left out" in dot_source(timeline, transfers=True, critical_path=True)


def test_arrows_across_other_lanes_are_seen_through(make_timeline):
    source = dot_source(make_timeline("interleaved_1f1b", p=4, m=4), transfers=True)
    colours = {line.split('color="')[1].split('"')[0] for line in source.splitlines() if "->" in line}
    assert colours == {"#55555a", "#55555a70"}


def test_peaks_that_are_the_same_are_one_number(make_timeline):
    assert "peak activations 64 on every rank" in dot_source(make_timeline("zb_v", p=32, m=64))


def test_in_print_outlines_differ_by_their_lines(make_timeline, read_nodes):
    predicted = make_timeline("1f1b", p=2, m=4)
    slower = replace(predicted, end=predicted.end + 0.3 * (predicted.schedule.kind == Kind.F))
    nodes = read_nodes(dot_source(predicted, slower, make_timeline("gpipe", p=2, m=4), theme=PRINT, critical_path=True))
    marks = ("critical", "slower or faster", "moved")
    styles = {mark: {n.attributes["style"] for k, n in nodes.items() if mark in k and "#" in k} for mark in marks}
    assert styles == {"critical": {""}, "slower or faster": {"dotted"}, "moved": {"dashed"}}


def test_words_beside_the_axis_stay_apart(make_timeline, read_nodes):
    nodes = read_nodes(dot_source(make_timeline("1f1b", p=4, m=8), start=20.0))
    assert nodes["time"].right <= nodes["time 20"].left + 8  # a letter to spare in both
