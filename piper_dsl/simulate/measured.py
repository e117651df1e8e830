"""Timelines that were measured, not simulated."""

from __future__ import annotations

import numpy as np

from ..ir.costs import Costs
from ..ir.schedule import Schedule
from .bounds import find_bounds
from .timeline import MEASURED, Timeline

__all__ = ["measured_timeline"]


def measured_timeline(
    schedule: Schedule, start: np.ndarray, end: np.ndarray, costs: Costs, alone: np.ndarray | None = None
) -> Timeline:
    """A timeline of measured times; ``start`` and ``end`` have one entry an operation, float64.

    An overlapped slot lasts from the first start of its operations to their last end. ``costs`` are what the times
    say of kinds and messages; ``alone`` is what every operation took by itself, float64, as the costs say where it
    is None.
    """
    first = schedule.slots.first[:-1]
    begun, ended = np.minimum.reduceat(start, first)[schedule.slot], np.maximum.reduceat(end, first)[schedule.slot]
    single = costs.single(schedule) if alone is None else alone
    bounds = find_bounds(schedule, ended - begun, single, costs.transfer_times(schedule))
    return Timeline(schedule, begun, ended, bounds, MEASURED, 0.0, costs)
