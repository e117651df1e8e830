"""Time cut into bins, for schedules with more operations than a picture has room for."""

from __future__ import annotations

import numpy as np

from ..ir.operations import Kind
from ..simulate.timeline import Timeline

__all__ = ["busy_shares"]


def busy_shares(timeline: Timeline, bins: int) -> np.ndarray:
    """How much of every bin each kind fills; float64 of shape (ranks, len(Kind), bins), 0 to 1.

    The bins cut the makespan, which must not be 0, into equal parts. Overlapped operations share
    their slot's time. Linear in the operations but for sorting.
    """
    schedule = timeline.schedule
    edges = np.linspace(0.0, timeline.makespan, bins + 1)
    weight = 1.0 / np.bincount(schedule.slot)[schedule.slot]
    shares = np.zeros((schedule.ranks, len(Kind), bins))
    group = schedule.rank.astype(np.int64) * len(Kind) + schedule.kind
    order = np.argsort(group, kind="stable")
    keys, first = np.unique(group[order], return_index=True)
    for key, members in zip(keys.tolist(), np.split(order, first[1:]), strict=True):
        started = _elapsed(timeline.start[members], weight[members], edges)
        ended = _elapsed(timeline.end[members], weight[members], edges)
        shares[divmod(key, len(Kind))] = np.diff(started - ended)
    return np.clip(shares * (bins / timeline.makespan), 0.0, 1.0)


def _elapsed(moments: np.ndarray, weight: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """For every edge, the weighted sum of the time since the moments that lie before it."""
    order = np.argsort(moments, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(weight[order])])
    moment_total = np.concatenate([[0.0], np.cumsum((weight * moments)[order])])
    before = np.searchsorted(moments[order], edges)
    elapsed: np.ndarray = total[before] * edges - moment_total[before]
    return elapsed
