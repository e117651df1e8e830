"""How many activations a rank holds while it runs each of its operations."""

from __future__ import annotations

import numpy as np

from .operations import Kind
from .schedule import Schedule

__all__ = ["live_activations"]


def live_activations(schedule: Schedule) -> np.ndarray:
    """The activations (one stage, one microbatch) live on its rank while each operation runs; int64.

    Live from the start of F to the end of B, or of W where the backward is split. In an overlapped slot
    the new one is live before the old one is freed. A schedule without a backward frees at the end of F.
    """
    takes = schedule.kind == Kind.F
    if not np.isin(schedule.kind, (Kind.B, Kind.W)).any():
        return np.asarray(takes, dtype=np.int64)
    taken = np.cumsum(takes)
    freed = np.cumsum(np.isin(schedule.kind, (Kind.B, Kind.W)))
    bounds = np.append(np.flatnonzero(~schedule.joined), len(schedule))
    last_of_slot = bounds[schedule.slot + 1] - 1
    freed_before_slot = np.append(0, freed)[bounds[schedule.slot]]
    before_rank = (np.append(0, taken) - np.append(0, freed))[schedule.offsets[:-1]]
    return np.asarray(taken[last_of_slot] - freed_before_slot - before_rank[schedule.rank])
