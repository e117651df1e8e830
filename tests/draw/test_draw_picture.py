"""What a picture says besides where its boxes are: words, colours, tooltips."""

from __future__ import annotations

import itertools

import pytest
from drawn import dot_source, find_dpi

from piper_dsl.draw.palette import paint
from piper_dsl.draw.program import render
from piper_dsl.draw.ticks import tick_step, ticks
from piper_dsl.ir.operations import Kind
from piper_dsl.simulate import Costs


def luminance(color: str) -> float:
    """Relative luminance after WCAG 2."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def lightness(color: str) -> float:
    """L* of CIELAB, 0 to 100."""
    return 116 * luminance(color) ** (1 / 3) - 16


def test_words(make_timeline, read_nodes):
    nodes = read_nodes(dot_source(make_timeline("interleaved_1f1b", p=4, m=8)))
    assert nodes["title"].attributes["label"] == r"interleaved 1F1B  p=4 m=8 v=2\l"
    facts = nodes["fact 0"].attributes["label"]
    assert facts == r"makespan 57 · bubble 15.8% of makespan, 15.8% of span · peak activations 11 9 7 5 (by rank)\l"
    assert nodes["stages 1"].attributes["label"] == r"stages 1 5\r"
    assert nodes["legend B"].attributes["label"] == r"B backward\l"
    assert "legend W" not in nodes


def test_boxes_name_microbatch_and_operation(make_timeline, read_nodes):
    nodes = read_nodes(dot_source(make_timeline("1f1b", p=2, m=2)))
    assert nodes["1B1 #8"].attributes["label"] == "1"
    assert nodes["1B1 #8"].attributes["tooltip"] == "1B1: 5 to 7"


def test_a_box_too_narrow_for_its_label_has_none(make_timeline, read_nodes):
    nodes = read_nodes(dot_source(make_timeline("zb_h1", Costs(F=10, I=10, W=0.1, OPT=1), p=2, m=6)))
    labels = {name.split(" #")[0]: node.attributes["label"] for name, node in nodes.items() if "#" in name}
    assert labels["0W3"] == ""
    assert labels["0F3"] == "3"


def test_chunks_differ_in_shade_and_kinds_in_colour(make_timeline, read_nodes):
    nodes = read_nodes(dot_source(make_timeline("interleaved_1f1b", p=2, m=2)))
    fill = {name.split(" #")[0]: node.attributes["fillcolor"] for name, node in nodes.items() if "#" in name}
    assert len({fill["0F0"], fill["2F0"], fill["0B0"], fill["2B0"]}) == 4
    assert fill["0F0"] == fill["1F1"]
    assert lightness(fill["2F0"]) < lightness(fill["0F0"])


def test_kinds_stay_apart_in_print():
    bands = [[lightness(paint(kind, chunk, 8).fill) for chunk in range(8)] for kind in (Kind.F, Kind.I, Kind.B, Kind.W)]
    for lighter, darker in itertools.pairwise(bands):
        assert min(lighter) > max(darker) + 2


@pytest.mark.parametrize("kind", list(Kind))
def test_letters_can_be_read_on_every_colour(kind):
    for chunk in range(4):
        look = paint(kind, chunk, 4)
        light, dark = sorted([luminance(look.fill), luminance(look.ink)], reverse=True)
        assert (light + 0.05) / (dark + 0.05) > 3.4


def test_names_may_hold_anything(make_timeline, read_nodes):
    text = 'schedule "a & b <c> \\\\ d"\nranks 1\nmicrobatches 1\nrank 0 { F[0] }\n'
    timeline = make_timeline(text)
    svg = render(dot_source(timeline), "svg").decode()
    name = timeline.schedule.name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert name in svg.replace("&#160;", " ").replace("&#45;", "-")


def test_nothing_takes_time(make_timeline, empty_timeline):
    still = make_timeline("1f1b", Costs(F=0, B=0), p=2, m=2)
    for timeline in (still, empty_timeline):
        assert "nothing here takes time" in dot_source(timeline)
        assert render(dot_source(timeline), "svg").startswith(b"<?xml")


def test_a_big_schedule_is_aggregated(make_timeline):
    timeline = make_timeline("interleaved_1f1b", p=64, m=512, v=4)
    svg = render(dot_source(timeline), "svg")
    assert b"262400 operations are too many" in svg.replace(b"&#160;", b" ")


def test_bitmaps_stay_within_bounds(make_timeline):
    assert find_dpi(make_timeline("1f1b", p=4, m=8)) == 192
    assert 72 <= find_dpi(make_timeline("gpipe", p=1000, m=1)) < 90
    wide = make_timeline("1f1b", p=2, m=350)
    dpi = find_dpi(wide)
    assert 72 <= dpi < 192
    png = render(dot_source(wide), "png", [f"-Gdpi={dpi}"])
    assert 14_000 < int.from_bytes(png[16:20], "big") <= 16_000


@pytest.mark.parametrize(
    ("shortest", "step"), [(1.0, 1), (1.1, 2), (2.1, 5), (5.1, 10), (0.03, 0.05), (700, 1000), (0.2, 0.2)]
)
def test_steps_are_round(shortest, step):
    assert tick_step(shortest) == pytest.approx(step)


def test_ticks_include_both_ends():
    assert ticks(0.0, 0.3, 0.1) == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert ticks(20.0, 41.0, 10.0) == [20.0, 30.0, 40.0]
