"""Pictures of one timeline, or of several, for the tests of this room."""

from __future__ import annotations

import numpy as np

from piper_dsl.draw import Scene, View, find_scene
from piper_dsl.draw import bins as bins_of
from piper_dsl.draw.picture import draw_picture
from piper_dsl.simulate.timeline import Timeline


def scenes(*timelines: Timeline, **view: object) -> list[Scene]:
    return [find_scene(timeline, View(**view)) for timeline in timelines]


def dot_source(*timelines: Timeline, **view: object) -> str:
    return draw_picture(scenes(*timelines, **view)).source


def find_dpi(timeline: Timeline) -> int:
    return draw_picture(scenes(timeline)).dpi


def busy_shares(timeline: Timeline, bins: int, **view: object) -> np.ndarray:
    return bins_of.busy_shares(*scenes(timeline, **view), bins)
