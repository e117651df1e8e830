"""An order of transfers for ranks that do one thing at a time: compute, or move one message."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy as np

from ..ir.costs import Costs
from ..ir.schedule import Schedule
from .plan import COMPUTE, RECEIVE, SEND
from .transfers import Transfers

__all__ = ["stream_order"]

_SAME = 1 + 1e-9
"""Sums of the same durations in another order differ by rounding: what ends so close together ends at once."""


def stream_order(schedule: Schedule, transfers: Transfers, outgoing: list[list[int]], costs: Costs) -> np.ndarray:
    """Slots and transfers as a simulation under ``costs`` runs them, in which a transfer takes both its ranks.

    Whenever ranks get free, the messages that wait between two free ones go first, the oldest ahead; then every
    free rank whose next slot has all it needs starts it. So no rank stands at a message for which the other
    side is not there.
    """
    return _Streams(schedule, transfers, outgoing, costs).run()


class _Streams:
    def __init__(self, schedule: Schedule, transfers: Transfers, outgoing: list[list[int]], costs: Costs) -> None:
        slots = schedule.slots
        self._outgoing = outgoing
        self._durations = costs.durations(schedule, slots).tolist()
        self._takes = transfers.times(costs).tolist()
        self._ends = list(zip(transfers.sender.tolist(), transfers.receiver.tolist(), strict=True))
        self._consumer = schedule.slot[transfers.consumer].tolist()
        self._rank_of = schedule.rank[slots.first[:-1]].tolist()
        self._missing = np.bincount(self._consumer, minlength=len(slots)).tolist()
        bounds = slots.offsets.tolist()
        self._next, self._last = bounds[:-1], bounds[1:]
        self._free = [True] * schedule.ranks
        self._waiting: list[dict[int, None]] = [{} for _ in range(schedule.ranks)]
        self._running: list[tuple[float, int, int]] = []
        self._steps: list[int] = []

    def run(self) -> np.ndarray:
        self._settle(0.0, range(len(self._free)))
        while self._running:
            now = self._running[0][0]
            touched: dict[int, None] = {}
            while self._running and self._running[0][0] <= now * _SAME:
                _, what, index = heapq.heappop(self._running)
                touched.update(dict.fromkeys(self._computed(index) if what == COMPUTE else self._moved(index)))
            self._settle(now, touched)
        return np.array(self._steps, dtype=np.int64)

    def _computed(self, slot: int) -> tuple[int, ...]:
        """A slot has ended: its messages wait at both their ranks. Returns the ranks that got free."""
        rank = self._rank_of[slot]
        self._free[rank] = True
        for transfer in self._outgoing[slot]:
            for end in self._ends[transfer]:
                self._waiting[end][transfer] = None
        return (rank,)

    def _moved(self, transfer: int) -> tuple[int, ...]:
        self._missing[self._consumer[transfer]] -= 1
        for end in self._ends[transfer]:
            self._free[end] = True
        return self._ends[transfer]

    def _settle(self, now: float, touched: Iterable[int]) -> None:
        """Starts all that can start among ranks of which something has changed."""
        ranks = list(touched)
        for rank in ranks:
            for transfer in [t for t in self._waiting[rank] if all(self._free[end] for end in self._ends[t])]:
                if all(self._free[end] for end in self._ends[transfer]):
                    ranks += [end for end in self._move(transfer, now) if end not in ranks]
        for rank in ranks:
            slot = self._next[rank]
            if self._free[rank] and slot < self._last[rank] and not self._missing[slot]:
                self._next[rank] += 1
                self._start(now + self._durations[slot], COMPUTE, slot, (rank,))

    def _move(self, transfer: int, now: float) -> tuple[int, ...]:
        """Starts a transfer between two free ranks. Returns them if that took no time."""
        for end in self._ends[transfer]:
            del self._waiting[end][transfer]
        self._steps.append(transfer * 3 + SEND)
        if self._takes[transfer]:
            self._start(now + self._takes[transfer], RECEIVE, transfer, self._ends[transfer])
            return ()
        self._steps.append(transfer * 3 + RECEIVE)
        return self._moved(transfer)

    def _start(self, end: float, what: int, index: int, ranks: tuple[int, ...]) -> None:
        self._steps.append(index * 3 + what)
        for rank in ranks:
            self._free[rank] = False
        heapq.heappush(self._running, (end, what, index))
