"""Time cut into bins, for schedules with more operations than a picture has room for."""

from __future__ import annotations

import numpy as np

from ..ir.operations import TRANSFERS, Kind
from .scene import Scene

__all__ = ["busy_shares"]


def busy_shares(scene: Scene, bins: int) -> np.ndarray:
    """How much of every bin each kind fills; float64 of shape (ranks shown, len(Kind), bins), 0 to 1.

    The bins cut the window, which must not be empty, into equal parts. Overlapped operations share
    their slot's time; transfers, which run beside the operations, are left out. Linear in the
    operations but for sorting.
    """
    schedule, timeline = scene.schedule, scene.timeline
    edges = np.linspace(scene.start, scene.end, bins + 1)
    weight = 1.0 / np.bincount(schedule.slot)[schedule.slot]
    shares = np.zeros((len(scene.ranks), len(Kind), bins))
    for kind in set(np.unique(schedule.kind).tolist()) - set(TRANSFERS):
        for rank, row in scene.row_of.items():
            first, after = schedule.offsets[rank : rank + 2]
            members = first + np.flatnonzero(schedule.kind[first:after] == kind)
            started = _elapsed(timeline.start[members], weight[members], edges)
            ended = _elapsed(timeline.end[members], weight[members], edges)
            shares[row, kind] = np.diff(started - ended)
    return np.clip(shares * (bins / scene.duration), 0.0, 1.0)


def _elapsed(moments: np.ndarray, weight: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """For every edge, the weighted sum of the time since the moments that lie before it."""
    order = np.argsort(moments, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(weight[order])])
    moment_total = np.concatenate([[0.0], np.cumsum((weight * moments)[order])])
    before = np.searchsorted(moments[order], edges)
    elapsed: np.ndarray = total[before] * edges - moment_total[before]
    return elapsed
