"""Busy shares as stacked bars, for timelines without room for single operations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..ir.operations import Kind
from ..simulate.timeline import Timeline
from .bins import busy_shares
from .boxes import lasting_kinds
from .frame import Frame
from .palette import paint
from .shapes import Shape, rectangle

__all__ = ["BINS_ARE", "bar_shapes"]

BINS_ARE = "bars show the share of time that each kind takes"

_MOST_BARS = 24_000
_MOST_BINS, _LEAST_BINS = 300, 20
_SEEN = 1e-3
"""Smaller shares are not drawn."""


def bar_shapes(timeline: Timeline, frame: Frame) -> Iterator[Shape]:
    """For every rank and bin of time, one bar a kind, stacked in the lane."""
    kinds = len(lasting_kinds(timeline))
    bins = min(_MOST_BINS, max(_LEAST_BINS, _MOST_BARS // (frame.ranks * kinds)))
    width = frame.width / bins
    for rank, shares in enumerate(busy_shares(timeline, bins)):
        base = np.cumsum(shares, axis=0) - shares
        for kind, place in np.argwhere(shares > _SEEN).tolist():
            fill = paint(Kind(kind)).fill
            bottom = frame.bottom(rank) + float(base[kind, place]) * frame.lane
            height = float(shares[kind, place]) * frame.lane
            name = f"{Kind(kind).name} on rank {rank} in bin {place}"
            yield rectangle(name, place * width, bottom, width, height, fillcolor=fill, color=fill, penwidth="0.4")
