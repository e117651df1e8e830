"""The timeline as text: to scale, complete, within its width."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from piper_dsl.draw import timeline_text
from piper_dsl.simulate import Costs

LANE = re.compile(r"^rank +(\d+) .*?│(.*)│$")

OVERLAPPED = """
schedule "overlapped"
ranks 1
microbatches 2
rank 0 { F[0]  F[1] & B[0]  B[1] }
"""


def lanes(plain: str) -> dict[int, str]:
    """The lanes of a picture with one stage a rank and one window."""
    return {int(match[1]): match[2] for match in map(LANE.match, plain.splitlines()) if match}


def test_gpipe_with_unit_costs(make_timeline):
    rows = lanes(timeline_text(make_timeline("gpipe", Costs(F=1, B=1), p=4, m=4), 100).plain)
    assert {len(row) for row in rows.values()} == {14 * 6}
    assert rows[3].index("F0") == 3 * 6
    assert rows[0].index("B0") == 10 * 6
    assert rows[0] == "F0─── F1─── F2─── F3─── " + "·" * 36 + "B0─── B1─── B2─── B3─── "


@pytest.mark.parametrize("width", [60, 80, 100, 160, 250])
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved_1f1b", "zb_h1"])
def test_no_line_is_longer_than_the_width(make_timeline, name, width):
    plain = timeline_text(make_timeline(name, p=4, m=16), width).plain
    assert max(map(len, plain.splitlines())) <= width


@pytest.mark.parametrize("width", [60, 100, 160])
@pytest.mark.parametrize("name", ["1f1b", "interleaved_1f1b", "zb_h1"])
def test_every_operation_is_named_once(make_timeline, name, width):
    timeline = make_timeline(name, p=3, m=12)
    plain = timeline_text(timeline, width).plain
    drawn = "".join(line.split("│")[1] for line in plain.splitlines() if line.count("│") == 2)
    operations = map(timeline.schedule.operation, range(len(timeline.schedule)))
    expected = sorted(f"{op.kind.name}{op.microbatch}" for op in operations if op.microbatch is not None)
    assert sorted(re.findall(r"[A-Z]\d+", drawn)) == expected


def test_every_stage_of_a_rank_has_a_line(make_timeline):
    plain = timeline_text(make_timeline("interleaved_1f1b", p=2, m=2, v=3), 200).plain
    named = [line.split("│")[0].strip() for line in plain.splitlines() if line.count("│") == 2]
    assert named == ["rank 0 stage 0", "stage 2", "stage 4", "rank 1 stage 1", "stage 3", "stage 5"]


def test_a_dot_means_that_the_whole_rank_idles(make_timeline):
    timeline = make_timeline("interleaved_1f1b", p=2, m=2, v=2)
    rows = [line.split("│")[1] for line in timeline_text(timeline, 200).plain.splitlines() if line.count("│") == 2]
    for rank in timeline.ranks:
        upper, lower = rows[2 * rank.rank : 2 * rank.rank + 2]
        idle = [column for column, character in enumerate(upper) if character == "·"]
        assert idle == [column for column, character in enumerate(lower) if character == "·"]
        assert len(idle) / len(upper) == pytest.approx(rank.idle / timeline.makespan)


def test_what_is_too_long_is_cut_into_windows_and_said(make_timeline):
    plain = timeline_text(make_timeline("1f1b", p=4, m=30), 80).plain
    assert "time is cut into 5 windows" in plain
    assert plain.count("rank 3 ") == 5
    assert "windows" not in timeline_text(make_timeline("1f1b", p=4, m=8), 80).plain


def test_an_operation_cut_by_a_window_goes_on_in_the_next(make_timeline):
    timeline = make_timeline("gpipe", Costs(F=1, B=9.5), p=1, m=6)
    whole = lanes(timeline_text(timeline, 140).plain)[0]
    cut = [line.split("│")[1] for line in timeline_text(timeline, 40).plain.splitlines() if line.startswith("rank 0 ")]
    assert len(cut) == 5
    assert all(len(row) <= 31 for row in cut)
    assert "".join(cut) == whole


def test_operations_that_take_no_time_take_no_column(make_timeline):
    plain = timeline_text(make_timeline("1f1b", p=2, m=2)).plain
    assert "OPT" not in plain
    assert "OPT" in lanes(timeline_text(make_timeline("1f1b", Costs(OPT=3), p=2, m=2)).plain)[0]


@pytest.mark.parametrize("costs", [{"F": 0.013, "B": 0.0291}, {"F": 1e6, "B": 2.5e6}, {"F": 1, "B": 1.9, "OPT": 0.01}])
def test_odd_costs(make_timeline, costs):
    timeline = make_timeline("1f1b", Costs(**costs), p=3, m=4)
    rows = lanes(timeline_text(timeline, 120).plain)
    for rank in timeline.ranks:
        row = rows[rank.rank]
        assert re.findall(r"[FB]\d", row).count("B3") == 1
        assert row.count("·") / len(row) == pytest.approx(rank.idle / timeline.makespan, abs=0.1)


def test_overlapped_operations_of_a_stage_share_a_box(make_timeline):
    assert lanes(timeline_text(make_timeline(OVERLAPPED)).plain)[0].count("F1+B0") == 1


def test_nothing_takes_time(make_timeline, empty_timeline):
    assert "nothing here takes time" in timeline_text(make_timeline("1f1b", Costs(F=0, B=0), p=2, m=2)).plain
    assert "nothing here takes time" in timeline_text(empty_timeline).plain


def test_a_rank_that_runs_nothing_has_an_empty_lane(make_timeline):
    text = 'schedule "half"\nranks 2\nmicrobatches 1\nstages 1\nplace s on 0\nrank 0 { F[0] }\nrank 1 { }\n'
    rows = lanes(timeline_text(make_timeline(text)).plain)
    assert rows == {0: "F0─── ", 1: "······"}


def test_the_title_tells_what_came_out(make_timeline):
    plain = timeline_text(make_timeline("interleaved_1f1b", p=4, m=8), 120).plain
    assert plain.startswith("interleaved 1F1B  p=4 m=8 v=2\n")
    assert "makespan 57 · bubble 15.8% of makespan, 15.8% of span · peak activations 11 9 7 5 (by rank)" in plain


def test_colours_tell_kinds_and_chunks_apart(make_timeline):
    text = timeline_text(make_timeline("interleaved_1f1b", p=2, m=2), 200)
    looks: dict[str, set[str]] = {"F0": set(), "B0": set()}
    for span in text.spans:
        if " on " in str(span.style):
            looks.setdefault(text.plain[span.start : span.end][:2], set()).add(str(span.style))
    assert len(looks["F0"]) == 2
    assert len(looks["B0"]) == 2
    assert not looks["F0"] & looks["B0"]


def test_a_big_schedule_is_aggregated(make_timeline):
    timeline = make_timeline("interleaved_1f1b", p=64, m=512, v=4)
    plain = timeline_text(timeline, 100).plain
    assert f"{len(timeline.schedule)} operations are too many or too short to show each" in plain
    rows = lanes(plain)
    assert len(rows) == 64
    assert {len(row) for row in rows.values()} == {90}
    assert rows[0][0] == "█"
    assert rows[0][40] == "█"
    assert rows[63][0] == "▁"
    assert rows[63][-1] == "·"


@pytest.mark.parametrize("late", [1e3, 1e9, 1e18, 1e100])
def test_ranks_that_start_far_apart_take_no_more_lines(make_timeline, late):
    """As where they ran on machines with clocks of their own."""
    timeline = make_timeline("1f1b", Costs(F=0.01, B=0.02), p=2, m=4)
    moved = timeline.start + late * (timeline.schedule.rank == 1)
    apart = replace(timeline, start=moved, end=moved + (timeline.end - timeline.start))
    plain = timeline_text(apart, 100).plain
    assert len(plain.splitlines()) < 120
    assert f"{len(timeline.schedule)} operations are too many or too short to show each" in plain
    assert "┬" in plain
