"""What a picture shows of operations: label, chunk, place in the slot, and how small the boxes get."""

from __future__ import annotations

import numpy as np

from ..ir.operations import TRANSFERS, Kind
from ..ir.schedule import Schedule
from .scene import Scene

__all__ = [
    "MOST_BOXES",
    "find_chunks",
    "find_grain",
    "find_parts",
    "kinds_present",
    "lasting_kinds",
    "writes_transfers",
]

MOST_BOXES = 10_000
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


def find_grain(scene: Scene) -> float:
    """The duration that must still be readable, in the unit of the costs; 0 if nothing takes time."""
    computed = scene.lasting[~np.isin(scene.schedule.kind[scene.lasting], TRANSFERS)]
    durations = np.sort(scene.timeline.end[computed] - scene.timeline.start[computed])
    spent = np.cumsum(durations)
    return float(durations[np.searchsorted(spent, _SMALL_SHARE * spent[-1])]) if len(spent) else 0.0


def kinds_present(scene: Scene) -> tuple[Kind, ...]:
    """The kinds that occur, in the order of the language; but for transfers."""
    return _kinds(scene, scene.shown)


def lasting_kinds(scene: Scene) -> tuple[Kind, ...]:
    """Those that take time somewhere."""
    return _kinds(scene, scene.lasting)


def writes_transfers(scene: Scene) -> bool:
    """Whether the schedule writes transfers itself."""
    return bool(np.isin(scene.schedule.kind[scene.shown], TRANSFERS).any())


def _kinds(scene: Scene, indices: np.ndarray) -> tuple[Kind, ...]:
    found = np.unique(scene.schedule.kind[indices]).tolist()
    return tuple(Kind(kind) for kind in found if kind not in TRANSFERS)
