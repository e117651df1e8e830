"""Busy shares as stacked bars, for timelines without room for single operations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ..ir.operations import Kind
from .bins import busy_shares
from .boxes import lasting_kinds
from .frame import Frame
from .palette import paint
from .scene import Scene
from .shapes import Shape, rectangle

__all__ = ["BINS_ARE", "bar_shapes", "runs"]

BINS_ARE = "bars show the share of time that each kind takes"

_MOST_BARS = 24_000
_MOST_BINS, _LEAST_BINS = 300, 20
_STEPS = 24
"""Heights are rounded to this part of a lane, so that equal neighbours become one bar."""


def bar_shapes(scene: Scene, frame: Frame) -> Iterator[Shape]:
    """For every rank and run of equal bins, one bar a kind, stacked in the lane."""
    kinds = max(1, len(lasting_kinds(scene)))
    bins = min(_MOST_BINS, max(_LEAST_BINS, _MOST_BARS // (len(scene.ranks) * kinds)))
    width = frame.x(scene.end) / bins
    fills = {kind: paint(kind, theme=scene.view.theme).fill for kind in Kind}
    for row, shares in enumerate(busy_shares(scene, bins)):
        tops = np.round(np.cumsum(shares, axis=0) * _STEPS)
        heights = np.diff(tops, axis=0, prepend=0.0)
        for first, after in runs(tops):
            for kind in np.flatnonzero(heights[:, first]).tolist():
                fill = fills[Kind(kind)]
                height = float(heights[kind, first]) * frame.lane / _STEPS
                bottom = frame.bottom(row) + float(tops[kind, first]) * frame.lane / _STEPS - height
                name = f"{Kind(kind).name} on rank {scene.ranks[row]} in bin {first}"
                left, right = first * width, after * width
                yield rectangle(name, left, bottom, right - left, height, fillcolor=fill, color=fill, penwidth="0.4")


def runs(columns: np.ndarray) -> list[tuple[int, int]]:
    """The stretches of equal columns of a (rows, columns) array, as first and one past the last."""
    changes = np.flatnonzero(np.any(np.diff(columns, axis=1) != 0, axis=0)) + 1
    edges = [0, *changes.tolist(), columns.shape[1]]
    return list(pairwise(edges))
