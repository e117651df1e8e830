"""Several timelines in one picture: one scale, and what differs is marked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn import dot_source, scenes

from piper_dsl.draw import DrawError, Ran, View, draw, find_scenes, scenes_text
from piper_dsl.draw.caption import heading
from piper_dsl.draw.differences import Differences, difference_facts, find_differences
from piper_dsl.draw.picture import draw_picture
from piper_dsl.simulate import Costs

ONE = "ranks 1\nmicrobatches 2\nrank 0: F0 F1 B0 B1\n"
OTHER = "ranks 1\nmicrobatches 2\nrank 0: F0 F1 B1 B0\n"


def test_the_same_differs_in_nothing(make_timeline):
    one, other = scenes(make_timeline("zb_h1", p=3, m=6), make_timeline("zb_h1", p=3, m=6))
    assert find_differences(one, other).moved == ()
    assert find_differences(one, other).changed == ()
    assert difference_facts(one, other) == ["makespan the same as the first", "0 operations in another order"]


def test_another_order_is_marked(make_timeline, read_nodes):
    one, other = make_timeline(ONE), make_timeline(OTHER)
    nodes = read_nodes(dot_source(one, other))
    assert [name for name in nodes if "moved" in name and "#" in name] == [
        "panel 1 moved 0B1 #2",
        "panel 1 moved 0B0 #3",
    ]
    assert "swatch moved 0" in nodes
    assert "swatch changed 0" not in nodes


def test_another_duration_is_marked(make_timeline, read_nodes):
    predicted = make_timeline("1f1b", p=2, m=3)
    durations = predicted.end - predicted.start
    longer = np.where(np.arange(len(durations)) == 2, durations * 1.5, durations * 1.05)
    measured = replace(predicted, end=predicted.start + longer)
    one, other = scenes(predicted, measured)
    assert find_differences(other, one).changed == (2,)
    nodes = read_nodes(dot_source(predicted, measured))
    assert f"panel 1 slower or faster {predicted.schedule.operation(2)} #2" in nodes


def test_all_have_one_scale_and_stand_below_each_other(make_timeline, read_nodes):
    short, long = make_timeline("zb_h1", p=4, m=8), make_timeline("gpipe", Costs(B=3), p=4, m=8)
    nodes = read_nodes(dot_source(short, long))
    unit = nodes["lane 0"].width / long.makespan
    for prefix, timeline in (("", short), ("panel 1 ", long)):
        for index in range(len(timeline.schedule)):
            node = nodes[f"{prefix}{timeline.schedule.operation(index)} #{index}"]
            if timeline.end[index] > timeline.start[index]:
                assert node.left == pytest.approx(timeline.start[index] * unit, abs=0.02)
    assert nodes["lane 3"].bottom > nodes["panel 1 title"].top
    assert nodes["panel 1 title"].bottom > nodes["panel 1 lane 0"].top
    facts = nodes["panel 1 fact 1"].attributes["label"]
    assert facts.startswith(f"makespan {long.makespan - short.makespan:+g} (")


def test_other_sizes_cannot_be_compared_operation_by_operation(make_timeline):
    one, other = scenes(make_timeline("1f1b", p=2, m=4), make_timeline("interleaved_1f1b", p=2, m=4))
    assert "single operations cannot be compared" in difference_facts(other, one)[1]
    assert find_differences(other, one).moved == ()


def test_text_has_them_to_one_scale(make_timeline):
    plain = scenes_text(scenes(make_timeline("1f1b", p=2, m=4), make_timeline("gpipe", p=2, m=4))).plain
    assert plain.count("rank 1 ") == 2
    assert plain.index("1F1B") < plain.index("GPipe")
    assert "makespan the same as the first · 12 operations in another order" in plain


def test_a_file_of_two(make_timeline, tmp_path):
    draw([make_timeline("1f1b", p=2, m=4), make_timeline("gpipe", p=2, m=4)], tmp_path / "both.svg")
    svg = (tmp_path / "both.svg").read_text(encoding="utf-8")
    assert "1F1B" in svg
    assert "GPipe" in svg


def test_arrows_stay_within_their_timeline(make_timeline, read_nodes):
    dot = dot_source(make_timeline("1f1b", p=2, m=2), make_timeline("gpipe", p=2, m=2), transfers=True)
    nodes = read_nodes(dot)
    ends = [line.split(" [")[0].strip().split(" -> ") for line in dot.splitlines() if " -> " in line]
    assert len(ends) == 8
    for source, target in ends:
        assert {source.strip('"'), target.strip('"')} <= set(nodes)
        assert ("panel 1" in source) == ("panel 1" in target)


def test_many_stages_and_microbatches_keep_their_keys_apart(make_timeline):
    one, other = scenes(make_timeline("1f1b", p=200, m=300), make_timeline("1f1b", p=200, m=300))
    assert find_differences(one, other) == Differences()
    gpipe = scenes(make_timeline("gpipe", p=200, m=300))[0]
    last = gpipe.schedule.rank == 199
    moved = set(find_differences(gpipe, one).moved)
    assert moved & set(np.flatnonzero(last).tolist())
    assert not moved & set(
        np.flatnonzero(~last & (gpipe.schedule.kind == 0) & (gpipe.schedule.microbatch < 1)).tolist()
    )


def test_one_that_has_ended_before_the_window_has_empty_lanes(make_timeline, read_nodes):
    short, long = make_timeline("zb_h1", p=4, m=8), make_timeline("1f1b", p=4, m=8)
    one, other = find_scenes([Ran(short), Ran(long)], View(start=28.0))
    assert (one.start, one.end, len(one.shown)) == (28.0, 33.0, 0)
    assert heading(one)[-1] == "ended at 27, before 28 to 33"
    assert heading(other)[-1] == "shown: 28 to 33 of 33"
    nodes = read_nodes(draw_picture([one, other]).source)
    assert {f"{prefix}lane {rank}" for prefix in ("", "panel 1 ") for rank in range(4)} <= set(nodes)
    assert not [name for name in nodes if "#" in name and not name.startswith("panel 1 ")]
    assert scenes_text([one, other]).plain.count("rank 3 ") == 2
    with pytest.raises(DrawError, match=r"nothing to draw from 40 to 33; choose a window within 0 to 33"):
        find_scenes([Ran(short), Ran(long)], View(start=40.0))


@pytest.mark.parametrize("ending", [".svg", ".txt", ".html", ".json"])
def test_empty_lanes_in_every_format(make_timeline, tmp_path, ending):
    both = [make_timeline("zb_h1", p=2, m=4), make_timeline("1f1b", p=2, m=4)]
    draw(both, tmp_path / f"a{ending}", View(start=13.5, memory=True, transfers=True, critical_path=True))
    assert "H1" in (tmp_path / f"a{ending}").read_text(encoding="utf-8")
