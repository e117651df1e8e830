"""Timelines as one HTML file that needs no network: its data, the viewer's script and style, and a page around them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template

from .caption import title
from .html_data import theme_colours, viewer_data
from .scene import Scene

__all__ = ["html_page"]


def html_page(scenes: Sequence[Scene]) -> str:
    """The page. All of the time of the ranks shown is in it; the window is where it opens."""
    viewer = files("piper_dsl.draw.viewer")
    theme = scenes[0].view.theme
    return Template((viewer / "viewer.html").read_text(encoding="utf-8")).substitute(
        title=escape(title(scenes[0].timeline)),
        scheme="dark" if theme.name == "dark" else "light",
        colours=" ".join(f"--{name}: {value};" for name, value in theme_colours(theme).items()),
        style=(viewer / "viewer.css").read_text(encoding="utf-8"),
        script=(viewer / "viewer.js").read_text(encoding="utf-8"),
        # No text of a schedule can end the element that holds it.
        data=json.dumps(viewer_data(scenes), separators=(",", ":")).replace("<", "\\u003c"),
    )
