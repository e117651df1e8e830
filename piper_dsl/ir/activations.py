"""How many activations a rank holds while it runs each of its operations."""

from __future__ import annotations

import numpy as np

from .operations import Kind
from .schedule import Schedule

__all__ = ["live_activations"]


def live_activations(schedule: Schedule, released_at_input: float = 0.0) -> np.ndarray:
    """The activations (one stage, one microbatch) live on its rank while each operation runs; float64.

    Live from the start of F to the end of B, or, where the backward is split, a part of it to the end of I
    (``released_at_input``, from 0 to 1) and the rest to the end of W; where it is recomputed, during F and
    then from the start of R. In an overlapped slot the new one is live before the old one is freed. A
    schedule without a backward frees at the end of F.
    """
    kind = schedule.kind
    forward = kind == Kind.F
    if not np.isin(kind, (Kind.B, Kind.W)).any():
        return np.asarray(forward, dtype=np.float64)
    passing = forward & _recomputed(schedule)
    taken = np.cumsum((forward & ~passing) | (kind == Kind.R))
    share = np.select([kind == Kind.B, kind == Kind.I, kind == Kind.W], [1.0, released_at_input, 1 - released_at_input])
    freed = np.cumsum(share)
    bounds = np.append(np.flatnonzero(~schedule.joined), len(schedule))
    last_of_slot = bounds[schedule.slot + 1] - 1
    freed_before_slot = np.append(0.0, freed)[bounds[schedule.slot]]
    before_rank = (np.append(0.0, taken) - np.append(0.0, freed))[schedule.offsets[:-1]]
    held = taken[last_of_slot] - freed_before_slot - before_rank[schedule.rank]
    live = held + np.bincount(schedule.slot, passing, len(bounds) - 1)[schedule.slot]
    return np.asarray(np.round(live, 9))


def _recomputed(schedule: Schedule) -> np.ndarray:
    """Which operations belong to a (stage, microbatch) that has an R."""
    key = schedule.stage.astype(np.int64) * schedule.microbatches + schedule.microbatch
    return np.isin(key, key[schedule.kind == Kind.R])
