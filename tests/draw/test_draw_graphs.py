"""The stage graph, the needs of operations, and the circle of a deadlock."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings

from piper_dsl.check import check
from piper_dsl.diagnostics import Source
from piper_dsl.draw import (
    DrawError,
    draw_cycle,
    draw_needs,
    draw_stages,
    draw_transfer_cycle,
    find_cycle,
    run_until_stuck,
)
from piper_dsl.draw.program import render
from piper_dsl.expand import expand
from piper_dsl.library import load
from piper_dsl.simulate import Costs
from piper_dsl.syntax import parse
from piper_dsl.testing import mutations, schedules

_EDGE = re.compile(r'^\t"?([^"\n]+?)"? -> "?([^"\n]+?)"? \[(.*)\]$', re.MULTILINE)
TOWERS = """
schedule "towers"
ranks 3
microbatches 1
stages 4
place s on s if s < 3 else 2
edge 0 -> 2
edge 1 -> 2
edge 2 -> 3
edge 0 -> 3
tie 0, 3
rank 0: F0 B0
rank 1: F0 B0
rank 2: 2F0 3F0 3B0 2B0
"""
THREE = """
schedule "three"
ranks 3
microbatches 2
rank 0 { F[0] B[0] F[1] B[1] }
rank 1 { F[0] F[1] B[0] B[1] }
rank 2 { F[1] F[0] B[0] B[1] }
"""


def make_schedule(text):
    return expand(parse(Source("test.pipe", text)))


def edges(drawing):
    return [(source, target, look) for source, target, look in _EDGE.findall(drawing.source)]


def test_stages_stand_behind_what_they_read(read_nodes):
    drawing = draw_stages(make_schedule(TOWERS))
    nodes = read_nodes(drawing.source)
    found = {(source, target) for source, target, look in edges(drawing) if "dashed" not in look}
    assert found == {(f"stage {a}", f"stage {b}") for a, b in [(0, 2), (1, 2), (2, 3), (0, 3)]}
    assert all(nodes[source].right < nodes[target].left for source, target in found)
    assert [(a, b) for a, b, look in edges(drawing) if "dashed" in look] == [("stage 0", "stage 3")]
    assert nodes["stage 3"].attributes["label"] == r"stage 3\nrank 2"


def test_a_stage_with_copies_names_its_ranks(read_nodes):
    nodes = read_nodes(draw_stages(load("chimera", {"p": 4, "m": 4})).source)
    assert nodes["stage 0"].attributes["label"] == r"stage 0\nranks 0 3"


@pytest.mark.parametrize("name", ["1f1b", "interleaved_1f1b", "zb_h1", "dualpipe"])
def test_every_need_is_an_arrow_to_the_right(read_nodes, name):
    schedule = load(name, {"p": 2, "m": 4})
    drawing, needs = draw_needs(schedule), schedule.needs
    nodes = read_nodes(drawing.source)
    arrows = {(int(a.split("#")[1]), int(b.split("#")[1])) for a, b, look in edges(drawing) if "dir=none" not in look}
    assert arrows == {(source, index) for index in range(len(schedule)) for source in needs.of(index).tolist()}
    boxes = {int(node.split("#")[1]): box for node, box in nodes.items() if "#" in node}
    assert all(boxes[source].right < boxes[target].left for source, target in arrows)
    assert render(drawing.source, "svg").startswith(b"<?xml")


def test_too_large_graphs_are_refused():
    with pytest.raises(DrawError, match="2052 operations are too many for a graph"):
        draw_needs(load("1f1b", {"p": 4, "m": 256}))
    with pytest.raises(DrawError, match="501 stages are too many to draw"):
        draw_stages(load("1f1b", {"p": 501, "m": 1}))


def test_needs_of_what_waits_in_a_circle_are_refused():
    with pytest.raises(DrawError, match="wait in a circle"):
        draw_needs(make_schedule(THREE))


def test_the_circle_of_a_deadlock(read_nodes):
    schedule = make_schedule(THREE)
    drawing = draw_cycle(schedule, run_until_stuck(schedule, Costs())[1])
    nodes = read_nodes(drawing.source)
    assert {(a.split(" #")[0], b.split(" #")[0]) for a, b, _ in edges(drawing)} == {
        ("0B0", "1B0"),
        ("1B0", "1F1"),
        ("1F1", "0F1"),
        ("0F1", "0B0"),
    }
    assert check(schedule)[0].notes[0] == "cycle: 0B0 → 1B0 → 1F1 → 0F1 → 0B0"
    assert all("#d00032" in look for _, _, look in edges(drawing))
    assert "dashed" in nodes["0B0 #1"].attributes["style"]
    assert nodes["0F0 #0"].right < nodes["0B0 #1"].left


def test_a_rank_that_waits_for_itself():
    schedule = make_schedule("ranks 1 microbatches 2\nrank 0: F0 B1 F1 B0")
    drawing = draw_cycle(schedule, run_until_stuck(schedule, Costs())[1])
    assert {(a[:3], b[:3]) for a, b, _ in edges(drawing)} == {("0B1", "0F1"), ("0F1", "0B1")}


def test_the_middle_of_a_long_wait_is_left_out(read_nodes):
    text = "ranks 2 microbatches 20\nrank 0 { F[0] B[0:20] F[1:20] }\nrank 1 { F[0:20] B[0:20] }"
    schedule = make_schedule(text)
    nodes = read_nodes(draw_cycle(schedule, run_until_stuck(schedule, Costs())[1]).source)
    assert nodes["left out on rank 0"].attributes["label"] == "…"
    assert sum("#" in name for name in nodes) <= 2 * 8


def test_without_a_circle_there_is_nothing_to_draw():
    schedule = load("1f1b", {"p": 2, "m": 2})
    with pytest.raises(DrawError, match="no circle of waiting ranks"):
        draw_cycle(schedule, run_until_stuck(schedule, Costs())[1])


FULL = """
schedule "full"
ranks 2
microbatches 4
rank 0 { for i in 0:4 { F[i] SEND_F[i]@0 } for i in 0:4 { RECV_B[i]@0 B[i] } }
rank 1 { for i in 0:4 { RECV_F[i]@1 F[i] B[i] SEND_B[i]@1 } }
"""
CROSSED = """
schedule "crossed"
ranks 2
microbatches 2
rank 0 { F[0] SEND_F[0]@0 F[1] RECV_B[0]@0 SEND_F[1]@0 B[0] RECV_B[1]@0 B[1] }
rank 1 { RECV_F[0]@1 F[0] RECV_F[1]@1 B[0] SEND_B[0]@1 F[1] B[1] SEND_B[1]@1 }
"""


@pytest.mark.parametrize("transport", ["blocking", "capacity=1"])
def test_transfers_that_wait_for_each_other(read_nodes, transport):
    """The arrows are those of the finding's note; the two ends of a meeting transfer are joined."""
    schedule = make_schedule(CROSSED if transport == "blocking" else FULL)
    (finding,) = check(schedule, transport)
    route = finding.notes[0].removeprefix("cycle: ").split(" → ")
    drawn = edges(draw_transfer_cycle(schedule, transport))
    arrows = [(a.split(" #")[0], b.split(" #")[0]) for a, b, look in drawn if "dashed" not in look]
    assert len(arrows) == len(route) - 1
    for (one, other), (node, awaited) in zip(arrows, pairwise(route), strict=True):
        assert one in node.split(" = ")
        assert other in awaited.split(" = ")
    joined = [{a.split(" #")[0], b.split(" #")[0]} for a, b, look in drawn if "dashed" in look]
    assert joined == [set(node.split(" = ")) for node in route[:-1] if " = " in node]


def test_transfers_that_complete_have_no_circle():
    with pytest.raises(DrawError, match="the transfers complete on buffered"):
        draw_transfer_cycle(make_schedule(CROSSED), "buffered")


@given(schedules(max_ranks=3, max_microbatches=2, overlap=False).flatmap(mutations))
@settings(max_examples=80, deadline=None)
def test_every_circle_is_one(changed):
    """Each of its operations waits for one other, which it needs or which stands before it on its rank."""
    schedule = make_schedule(changed.text)
    heads, needs = run_until_stuck(schedule, Costs())[1], schedule.needs
    cycle = find_cycle(schedule, heads)
    if any(finding.code in ("P301", "P302") for finding in check(schedule)):
        assert cycle
    if not cycle:
        return
    found = [(a.split("#"), b.split("#")) for a, b, _ in edges(draw_cycle(schedule, heads))]
    arrows = {int(a[1]): int(b[1]) for a, b in found if len(a) == len(b) == 2}
    for index, other in arrows.items():
        assert other in needs.of(index) or (other == index - 1 and schedule.rank[other] == schedule.rank[index])
    if len(arrows) == len(found):
        assert set(arrows) == set(arrows.values())
