"""Schedules that cannot run are drawn up to where they are stuck."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import scenes
from hypothesis import given, settings

from piper_dsl.check import check
from piper_dsl.diagnostics import Source
from piper_dsl.draw import View, find_scene, run_until_stuck, scenes_text
from piper_dsl.draw.picture import draw_picture
from piper_dsl.expand import expand
from piper_dsl.library import load
from piper_dsl.simulate import Costs, simulate
from piper_dsl.syntax import parse
from piper_dsl.testing import mutations, schedules

STUCK = """
schedule "stuck"
ranks 3
microbatches 4
rank 0 { F[0] F[1] B[0] F[2] B[1] F[3] B[2] B[3] OPT }
rank 1 { F[0] F[1] F[2] B[0] F[3] B[1] B[2] B[3] OPT }
rank 2 { for i in 0:4 { F[i] B[i] } OPT }
"""


def make_schedule(text):
    return expand(parse(Source("stuck.pipe", text)))


def test_the_heads_and_what_they_wait_for():
    timeline, heads = run_until_stuck(make_schedule(STUCK), Costs())
    assert [(head.rank, str(head.operation), [*map(str, head.awaited)]) for head in heads] == [
        (0, "0B0", ["1B0"]),
        (1, "1F2", ["0F2"]),
        (2, "2F2", ["1F2"]),
    ]
    assert [(head.time, head.duration) for head in heads] == [(2, 2), (3, 1), (8, 1)]
    assert len(timeline.schedule) == 8
    assert timeline.makespan == 8


def test_the_picture_marks_them(read_nodes):
    timeline, heads = run_until_stuck(make_schedule(STUCK), Costs())
    nodes = read_nodes(draw_picture([find_scene(timeline, View(), heads, 1)]).source)
    unit = nodes["lane 0"].width / 9
    stuck = nodes["stuck 1F2 on rank 1"]
    assert (stuck.left, stuck.right) == pytest.approx((3 * unit, 4 * unit), abs=0.02)
    assert stuck.attributes["tooltip"] == "1F2 is stuck at 3: waits for 0F2"
    facts = nodes["fact 0"].attributes["label"]
    assert facts.startswith("stuck: 8 operations run, then nothing goes on · rank 0 at 0B0, rank 1 at 1F2")


def test_the_text_marks_them():
    timeline, heads = run_until_stuck(make_schedule(STUCK), Costs())
    plain = scenes_text([find_scene(timeline, View(), heads)]).plain
    assert "rank 1 │······F0─── F1─── F2!── ····" in plain
    assert "!: stuck, waits for what never ends" in plain


def test_a_rank_against_itself_is_stuck_there():
    timeline, heads = run_until_stuck(make_schedule("ranks 1 microbatches 2\nrank 0: F0 B1 F1 B0"), Costs())
    assert [(str(head.operation), [*map(str, head.awaited)]) for head in heads] == [("0B1", ["0F1"])]
    assert len(timeline.schedule) == 1


@pytest.mark.parametrize("name", ["1f1b", "zb_v", "dualpipe", "forward_only"])
def test_what_can_run_runs_to_its_end(name):
    schedule = load(name, {"p": 4, "m": 8})
    costs = Costs(B=1.7, latency=0.3)
    timeline, heads = run_until_stuck(schedule, costs)
    assert heads == ()
    assert np.array_equal(timeline.start, simulate(schedule, costs).start)
    assert np.array_equal(timeline.end, simulate(schedule, costs).end)


@given(schedules(max_ranks=3, max_microbatches=3).flatmap(mutations))
@settings(max_examples=80, deadline=None)
def test_whatever_is_changed_can_be_drawn(changed):
    schedule = make_schedule(changed.text)
    timeline, heads = run_until_stuck(schedule, Costs())
    needs = timeline.schedule.needs
    for index in range(len(timeline.schedule)):
        assert all(timeline.end[source] <= timeline.start[index] for source in needs.of(index))
    if not check(schedule):
        assert not heads
        assert len(timeline.schedule) == len(schedule)
    scene = find_scene(timeline, View(transfers=True, memory=True, critical_path=True), heads)
    assert draw_picture([scene])
    assert scenes_text([scene]).plain


def test_scenes_of_whole_schedules_have_no_heads(make_timeline):
    assert scenes(make_timeline("1f1b", p=2, m=2))[0].heads == ()
