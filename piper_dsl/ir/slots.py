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
    Of every need, ``producer`` and ``consumer`` are the operations at its ends.
    """

    first: np.ndarray
    offsets: np.ndarray
    needs: Needs
    producer: np.ndarray
    consumer: np.ndarray

    def __len__(self) -> int:
        return len(self.first) - 1

    def rows(self) -> list[list[int]]:
        """The slots of every rank, in order."""
        bounds = self.offsets.tolist()
        return [list(range(start, end)) for start, end in pairwise(bounds)]


def find_slots(schedule: Schedule, needs: Needs) -> Slots:
    """The slots of a schedule. Needs within one slot are left out: no order can meet them."""
    first = np.append(np.flatnonzero(~schedule.joined), len(schedule))
    consumer = np.repeat(np.arange(len(schedule)), np.diff(needs.offsets))
    if len(first) == len(schedule) + 1:
        return Slots(first, schedule.offsets, needs, needs.sources, consumer)
    slot = schedule.slot
    outside = slot[consumer] != slot[needs.sources]
    producer, consumer = needs.sources[outside], consumer[outside]
    counts = np.bincount(slot[consumer], minlength=len(first) - 1)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return Slots(first, np.searchsorted(first, schedule.offsets), Needs(offsets, slot[producer]), producer, consumer)
