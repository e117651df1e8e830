"""Whole pictures, as text and as DOT. ``UPDATE_GOLDEN=1`` writes them anew; look at the difference."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from piper_dsl.draw import timeline_text
from piper_dsl.draw.graphviz import dot_source

GOLDEN = Path(__file__).parent / "golden"
NAMES = ["gpipe", "1f1b", "interleaved_1f1b", "zb_h1"]


def assert_golden(path: Path, content: str) -> None:
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(content, encoding="utf-8", newline="\n")
    assert content == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_text(make_timeline, name):
    assert_golden(GOLDEN / f"{name}.txt", timeline_text(make_timeline(name, p=4, m=8)).plain + "\n")


@pytest.mark.parametrize("name", NAMES)
def test_dot(make_timeline, name):
    assert_golden(GOLDEN / f"{name}.dot", dot_source(make_timeline(name, p=4, m=8)))


@pytest.mark.parametrize("name", NAMES)
def test_another_run_gives_the_same(make_timeline, name):
    one, other = make_timeline(name, p=3, m=6), make_timeline(name, p=3, m=6)
    assert timeline_text(one).markup == timeline_text(other).markup
    assert dot_source(one) == dot_source(other)
