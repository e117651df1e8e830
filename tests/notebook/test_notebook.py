"""What a notebook shows."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import piper_dsl as piper
from piper_dsl.notebook import program_html, schedule_svg, timeline_svg


@pytest.fixture
def schedule():
    return piper.load("1f1b", p=2, m=3)


def test_a_timeline_and_its_schedule_show_the_same_picture(schedule):
    svg = timeline_svg(piper.simulate(schedule))
    assert svg.startswith("<?xml")
    assert "0F2 #" in svg
    assert schedule_svg(schedule) == svg


def test_a_stuck_schedule_shows_how_far_it_gets(tmp_path):
    (tmp_path / "stuck.pipe").write_text("ranks 2 microbatches 2\nrank 0: F0 B0 F1 B1\nrank 1: F0 F1 B0 B1\n")
    assert "1F1 is stuck at 2: waits for 0F1" in schedule_svg(piper.load(str(tmp_path / "stuck.pipe")))


def test_without_graphviz_a_warning_says_so(schedule, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.warns(UserWarning, match="there is no Graphviz to draw with; install"):
        assert schedule_svg(schedule) is None


def test_a_program_is_a_table(schedule):
    program = piper.lower(schedule)
    html = program_html(program)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]
    assert cells == [[str(instruction) for instruction in program.row(rank)] for rank in range(2)]
    assert f"1F1B: {len(program)} instructions" in html


def test_a_long_program_is_cut_and_says_so():
    html = program_html(piper.lower(piper.load("1f1b", p=2, m=200)))
    assert html.count("more</td>") == 2
    assert html.count("<td") < 2 * 202


def test_the_values_have_the_methods_that_notebooks_look_for(schedule):
    timeline, program = piper.simulate(schedule), piper.lower(schedule)
    assert timeline._repr_svg_() == timeline_svg(timeline)
    assert schedule._repr_svg_() == schedule_svg(schedule)
    assert program._repr_html_() == program_html(program)


def test_importing_draws_nothing():
    code = "import piper_dsl, sys; print({'graphviz', 'piper_dsl.draw.scene'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()"
