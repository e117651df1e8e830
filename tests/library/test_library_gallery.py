"""The gallery in the docs is what the library draws today."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import piper_dsl as piper

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gallery")
    runpy.run_path(str(DOCS / "make_gallery.py"))["main"](folder)
    return folder


def test_the_page_is_up_to_date(written):
    assert (DOCS / "gallery.md").read_text(encoding="utf-8") == (written / "gallery.md").read_text(encoding="utf-8")


def _words(path: Path) -> list[str]:
    """The words of a picture: they name what came out, whichever Graphviz drew it."""
    return re.findall(r">([^<>]+)</(?:text|title)>", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", piper.library_names())
def test_the_pictures_are_up_to_date(written, name):
    assert _words(DOCS / "gallery" / f"{name}.svg") == _words(written / "gallery" / f"{name}.svg")


def test_there_are_no_others():
    assert sorted(path.stem for path in (DOCS / "gallery").iterdir()) == sorted(piper.library_names())
