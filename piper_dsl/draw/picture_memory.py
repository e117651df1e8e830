"""What every rank holds, as a curve under its lane."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .caption import number
from .frame import Frame
from .scene import Scene
from .shapes import Shape, rectangle, words

__all__ = ["memory_shapes"]

_FULL, _TINY = 0.86, 6.5
"""The share of its strip that the highest curve fills, and the size of the numbers."""
_MOST_STEPS = 300
"""Where a rank has more, the picture shows the most that is held in each of so many parts of the window."""


def memory_shapes(scene: Scene, frame: Frame) -> Iterator[Shape]:
    """A bar for every step of every curve, all to one scale, and the peak of each rank beside it."""
    curves = {rank: scene.timeline.memory_curve(rank) for rank in scene.ranks}
    highest = max((float(held.max(initial=0.0)) for _, held in curves.values()), default=0.0) or 1.0
    theme = scene.view.theme
    for rank, row in scene.row_of.items():
        bottom = frame.bottom(row) - frame.memory
        peak = scene.timeline.peak_memory[rank]
        said = f"holds {number(peak)} at most"
        middle = bottom + frame.memory / 2
        yield words(f"held {rank}", said, -6.0, middle, min(_TINY, frame.memory), "r", fontcolor=theme.muted)
        for start, end, held in _steps(scene, *curves[rank]):
            height = held / highest * frame.memory * _FULL
            name, left = f"memory of rank {rank} from {start:.6g}", frame.x(start)
            look = {"fillcolor": theme.memory, "penwidth": "0", "tooltip": number(held)}
            yield rectangle(name, left, bottom, frame.x(end) - left, height, **look)


def _steps(scene: Scene, times: np.ndarray, held: np.ndarray) -> Iterator[tuple[float, float, float]]:
    """What is held from when to when, within the window."""
    changes = np.diff(held, prepend=-1.0) != 0
    times, held = times[changes], held[changes]
    ends = np.append(times[1:], scene.end)
    inside = (ends > scene.start) & (times < scene.end) & (ends > times) & (held > 0)
    starts, ends, held = times[inside], ends[inside], held[inside]
    if len(starts) > _MOST_STEPS:
        starts, ends, held = _coarser(scene, starts, ends, held)
    for start, end, level in zip(starts.tolist(), ends.tolist(), held.tolist(), strict=True):
        yield max(start, scene.start), min(end, scene.end), level


def _coarser(
    scene: Scene, starts: np.ndarray, ends: np.ndarray, held: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The most that is held in each of equal parts of the window; equal neighbours become one."""
    edges = np.linspace(scene.start, scene.end, _MOST_STEPS + 1)
    first = np.clip(np.searchsorted(edges, starts, side="right") - 1, 0, _MOST_STEPS - 1)
    after = np.clip(np.searchsorted(edges, ends), 1, _MOST_STEPS)
    most = np.zeros(_MOST_STEPS)
    for left, right, level in zip(first.tolist(), after.tolist(), held.tolist(), strict=True):
        most[left:right] = np.maximum(most[left:right], level)
    changes = np.append(0, np.flatnonzero(np.diff(most)) + 1)
    return edges[changes], np.append(edges[changes[1:]], scene.end), most[changes]
