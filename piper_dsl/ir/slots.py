"""Slots: what a rank runs at a time, one operation or several that overlap."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .needs import Needs
from .schedule import Schedule

__all__ = ["Slots", "find_slots"]


@dataclass(frozen=True, eq=False)
class Slots:
    """The slots of a schedule and what each needs to have ended before it starts.

    Slot ``k`` holds the operations ``first[k]`` to ``first[k + 1]``; those of rank ``r`` are
    ``offsets[r]`` to ``offsets[r + 1]``. Without overlapped slots, slots and operations coincide.
    """

    first: np.ndarray
    offsets: np.ndarray
    needs: Needs

    def __len__(self) -> int:
        return len(self.first) - 1

    def rows(self) -> list[list[int]]:
        """The slots of every rank, in order."""
        bounds = self.offsets.tolist()
        return [list(range(start, end)) for start, end in pairwise(bounds)]


def find_slots(schedule: Schedule, needs: Needs) -> Slots:
    """The slots of a schedule. Needs within one slot are left out: no order can meet them."""
    first = np.append(np.flatnonzero(~schedule.joined), len(schedule))
    if len(first) == len(schedule) + 1:
        return Slots(first, schedule.offsets, needs)
    slot = schedule.slot
    needing = np.repeat(slot, np.diff(needs.offsets))
    needed = slot[needs.sources]
    outside = needing != needed
    counts = np.bincount(needing[outside], minlength=len(first) - 1)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return Slots(first, np.searchsorted(first, schedule.offsets), Needs(offsets, needed[outside]))
