"""The gallery of the docs is what its command writes."""

from __future__ import annotations

import runpy
from pathlib import Path

from piper_dsl.library import library_names

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_that_of_the_library():
    gallery = runpy.run_path(str(DOCS / "make_gallery.py"))
    timelines = {name: gallery["simulated"](name) for name in library_names()}
    assert "".join(gallery["pages"](timelines)) == (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert sorted(path.stem for path in (DOCS / "gallery").glob("*.svg")) == sorted(timelines)
