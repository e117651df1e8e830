"""Timelines as one HTML file that needs no network: its data, the viewer's script and style, and a page around them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from .caption import title
from .errors import DrawError
from .html_data import theme_colours, viewer_data
from .scene import Scene

__all__ = ["Sweep", "find_sweep", "html_page", "sweep_page"]

_MOST = 300_000
"""Operations in one page, of all its variants: some 30 MB."""


@dataclass(frozen=True)
class Sweep:
    """The timelines of one subject under every combination of some parameters' ``values``, the last varying fastest.

    A variant is what a picture shows, or the reason why there is no such schedule.
    """

    values: Mapping[str, Sequence[int]]
    variants: Sequence[Sequence[Scene] | str]


def find_sweep(values: Mapping[str, Sequence[int]], variants: Iterable[Sequence[Scene] | str]) -> Sweep:
    """The sweep of variants that are made while they are asked for.

    Raises :class:`DrawError` as soon as they are too much for one page; one alone never is.
    """
    kept: list[Sequence[Scene] | str] = []
    drawn = count = 0
    for variant in variants:
        kept.append(variant)
        if not isinstance(variant, str):
            drawn += 1
            count += sum(len(scene.schedule) for scene in variant)
        if drawn > 1 and count > _MOST:
            message = f"these values make more than the {_MOST:,} operations that one page holds"
            raise DrawError(message, "choose fewer values of the parameters")
    return Sweep(values, kept)


def html_page(scenes: Sequence[Scene]) -> str:
    """The page. All of the time of the ranks shown is in it; the window is where it opens."""
    return sweep_page(Sweep({}, [scenes]))


def sweep_page(sweep: Sweep) -> str:
    """A page with a slider for every parameter that has several values.

    Raises :class:`DrawError` where there is no schedule for any combination.
    """
    drawn = [variant for variant in sweep.variants if not isinstance(variant, str)]
    if not drawn:
        raise DrawError(f"there is nothing to draw: {sweep.variants[0]}", "choose other values of the parameters")
    return _page(drawn[0][0], {"sliders": _sliders(sweep), "variants": list(map(_variant, sweep.variants))})


def _sliders(sweep: Sweep) -> list[dict[str, Any]]:
    return [{"name": name, "values": list(values)} for name, values in sweep.values.items() if len(values) > 1]


def _variant(variant: Sequence[Scene] | str) -> dict[str, Any]:
    return {"refusal": variant} if isinstance(variant, str) else viewer_data(variant)


def _page(scene: Scene, data: dict[str, Any]) -> str:
    """The page around its data; the scene gives title and colours."""
    viewer, theme = files("piper_dsl.draw.viewer"), scene.view.theme
    return Template((viewer / "viewer.html").read_text(encoding="utf-8")).substitute(
        title=escape(title(scene.timeline)),
        scheme="dark" if theme.name == "dark" else "light",
        colours=" ".join(f"--{name}: {value};" for name, value in theme_colours(theme).items()),
        style=(viewer / "viewer.css").read_text(encoding="utf-8"),
        script=(viewer / "viewer.js").read_text(encoding="utf-8"),
        # No text of a schedule can end the element that holds it.
        data=json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    )
