"""An order of transfers for ranks that compute while their messages wait in queues."""

from __future__ import annotations

import heapq

import numpy as np

from ..ir.costs import Costs
from ..ir.schedule import Schedule
from ..ir.slots import Slots
from .plan import COMPUTE, RECEIVE, SEND
from .transfers import Transfers
from .transport import Transport

__all__ = ["queue_order", "queues_of"]


def queues_of(transport: Transport, sender: int, receiver: int) -> tuple[tuple[int | str, ...], ...]:
    """The queues that a transfer waits in, at both ends; for transports without any, those of `rank`."""
    if not transport.rendezvous:
        return (("s", sender), ("r", receiver))
    ends = ((sender, receiver, True), (receiver, sender, False))
    return tuple((rank, *transport.queue(rank, peer, sends)) for rank, peer, sends in ends)


def queue_order(
    schedule: Schedule, transfers: Transfers, outgoing: list[list[int]], transport: Transport, costs: Costs
) -> np.ndarray:
    """Slots and transfers as a simulation under ``costs`` runs them, in which a transfer starts when its queues
    are free at both ends; they serve whoever is ready first."""
    return _Events(schedule, transfers, outgoing, transport, costs).run()


class _Events:
    """A simulation in which no order of transfers is given: queues serve whoever is ready first."""

    def __init__(
        self,
        schedule: Schedule,
        transfers: Transfers,
        outgoing: list[list[int]],
        transport: Transport,
        costs: Costs,
    ) -> None:
        slots = schedule.slots
        self._outgoing = outgoing
        self._durations = costs.durations(schedule, slots).tolist()
        self._takes = transfers.times(costs).tolist()
        self._consumer = schedule.slot[transfers.consumer].tolist()
        self._ends = list(zip(transfers.sender.tolist(), transfers.receiver.tolist(), strict=True))
        self._transport = transport
        self._rank_of = schedule.rank[slots.first[:-1]].tolist()
        self._bounds = slots.offsets.tolist()
        self._local, self._missing = self._waits(slots)
        self._free_queue: dict[tuple[int | str, ...], float] = {}
        self._events: list[tuple[float, int, int]] = []
        self._steps: list[int] = []

    def _waits(self, slots: Slots) -> tuple[list[list[int]], list[int]]:
        """Who waits for a slot on its own rank, and how many needs of every slot are open.

        A slot is also behind the one before it on its rank.
        """
        local: list[list[int]] = [[] for _ in range(len(slots))]
        missing = [0] * len(slots)
        needing = np.repeat(np.arange(len(slots)), np.diff(slots.needs.offsets)).tolist()
        for slot, source in zip(needing, slots.needs.sources.tolist(), strict=True):
            if self._rank_of[slot] == self._rank_of[source] and source != slot - 1:
                local[source].append(slot)
                missing[slot] += 1
        for transfer in range(len(self._consumer)):
            missing[self._consumer[transfer]] += 1
        for start, end in zip(self._bounds, self._bounds[1:], strict=False):
            for slot in range(start + 1, end):
                local[slot - 1].append(slot)
                missing[slot] += 1
        return local, missing

    def run(self) -> np.ndarray:
        for start, end in zip(self._bounds, self._bounds[1:], strict=False):
            if start < end and not self._missing[start]:
                self._start(start, 0.0)
        while self._events:
            now, what, index = heapq.heappop(self._events)
            if what == COMPUTE:
                self._ended(index, now)
            elif what == SEND:
                self._move(index, now)
            else:
                self._met(self._consumer[index], now)
        return np.array(self._steps, dtype=np.int64)

    def _start(self, slot: int, now: float) -> None:
        self._steps.append(slot * 3 + COMPUTE)
        heapq.heappush(self._events, (now + self._durations[slot], COMPUTE, slot))

    def _ended(self, slot: int, now: float) -> None:
        for transfer in self._outgoing[slot]:
            heapq.heappush(self._events, (now, SEND, transfer))
        for waiting in self._local[slot]:
            self._met(waiting, now)

    def _move(self, transfer: int, now: float) -> None:
        """Starts a transfer if its queues are free, else tries again when they are."""
        queues = queues_of(self._transport, *self._ends[transfer])
        free = max(self._free_queue.get(queue, 0.0) for queue in queues)
        if free > now:
            heapq.heappush(self._events, (free, SEND, transfer))
            return
        self._steps += (transfer * 3 + SEND, transfer * 3 + RECEIVE)
        end = now + self._takes[transfer]
        self._free_queue.update(dict.fromkeys(queues, end))
        heapq.heappush(self._events, (end, RECEIVE, transfer))

    def _met(self, slot: int, now: float) -> None:
        self._missing[slot] -= 1
        if not self._missing[slot]:
            self._start(slot, now)
