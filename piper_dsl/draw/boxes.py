"""What a picture shows of operations: label, chunk, place in the slot, and how small the boxes get."""

from __future__ import annotations

import numpy as np

from ..ir.operations import Kind
from ..ir.schedule import Schedule
from ..simulate.timeline import Timeline

__all__ = ["MOST_BOXES", "find_chunks", "find_grain", "find_parts", "kinds_present", "lasting_kinds"]

MOST_BOXES = 20_000
"""No picture shows more operations than these one by one."""
_SMALL_SHARE = 0.05
"""Short operations that together take less than this share of the busy time may go without a label."""


def find_chunks(schedule: Schedule) -> np.ndarray:
    """Of every operation, which of its rank's stages it runs, counted from 0; int64."""
    rows = np.split(schedule.stage, schedule.offsets[1:-1])
    return np.concatenate([np.unique(row, return_inverse=True)[1].ravel() for row in rows])


def find_parts(schedule: Schedule) -> tuple[np.ndarray, np.ndarray]:
    """Of every operation, its place among those of its slot and how many they are; int64 each."""
    first = np.flatnonzero(~schedule.joined)
    count = np.bincount(schedule.slot, minlength=len(first))
    return np.arange(len(schedule)) - first[schedule.slot], count[schedule.slot]


def find_grain(timeline: Timeline) -> float:
    """The duration that must still be readable, in the unit of the costs; 0 if nothing takes time."""
    durations = np.sort(timeline.end - timeline.start)
    spent = np.cumsum(durations)
    return float(durations[np.searchsorted(spent, _SMALL_SHARE * spent[-1])]) if len(spent) else 0.0


def kinds_present(schedule: Schedule) -> tuple[Kind, ...]:
    """The kinds that occur, in the order of the language."""
    return tuple(Kind(int(kind)) for kind in np.unique(schedule.kind))


def lasting_kinds(timeline: Timeline) -> tuple[Kind, ...]:
    """The kinds that take time somewhere, in the order of the language."""
    return tuple(Kind(int(kind)) for kind in np.unique(timeline.schedule.kind[timeline.end > timeline.start]))
