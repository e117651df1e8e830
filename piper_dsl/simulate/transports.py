"""The clock with transfers: queues at both ends, in the order of a plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..plan.plan import COMPUTE, RECEIVE, SEND, Plan
from ..plan.transport import Transport

__all__ = ["run_plan"]


def run_plan(
    plan: Plan, transport: Transport, durations: np.ndarray, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The start of every slot of a plan on a transport, and start and end of every transfer.

    float64 of shape (slots,) and (transfers, 2); ``durations`` are per slot, ``times`` per
    transfer. One pass over the plan's order, which respects everything a step waits for.
    """
    clock = _Clock(plan, transport, durations, times)
    for step in plan.order.tolist():
        clock.run(step // 3, step % 3)
    return np.array(clock.start), np.array(clock.moved).reshape(-1, 2)


@dataclass
class _Turn:
    """One turn in the queues of a rank: from when it may start, and when all of it has ended."""

    start: float
    end: float


class _Clock:
    """When slots end, messages arrive, ranks and queues are free."""

    def __init__(self, plan: Plan, transport: Transport, durations: np.ndarray, times: np.ndarray) -> None:
        slots, transfers, schedule = plan.slots, plan.transfers, plan.schedule
        self.start = [0.0] * len(slots)
        self.moved = [(0.0, 0.0)] * len(transfers)
        self._transport = transport
        self._takes = times.tolist()
        self._durations = durations.tolist()
        self._end = [0.0] * len(slots)
        self._rank_of = schedule.rank[slots.first[:-1]].tolist()
        self._producer = schedule.slot[transfers.producer].tolist()
        self._consumer = schedule.slot[transfers.consumer].tolist()
        self._sender, self._receiver = transfers.sender.tolist(), transfers.receiver.tolist()
        self._group = plan.group
        self._members = _members(plan)
        self._turns: dict[int | None, _Turn] = {}
        self._free = [0.0] * schedule.ranks
        self._queue: dict[tuple[int, ...], _Turn] = {}
        self._arrived = [0.0] * len(slots)
        self._sent = [0.0] * len(transfers)
        self._received: dict[tuple[int, int], list[float]] = {}
        self._count: dict[tuple[int, int], int] = {}

    def run(self, index: int, what: int) -> None:
        if what == COMPUTE:
            self._compute(index)
        elif not self._transport.rendezvous:
            self._send(index) if what == SEND else self._receive(index)
        elif what == RECEIVE:
            self._meet(index)

    def _compute(self, slot: int) -> None:
        rank = self._rank_of[slot]
        self.start[slot] = begin = max(self._free[rank], self._arrived[slot])
        self._end[slot] = self._free[rank] = begin + self._durations[slot]

    def _deliver(self, transfer: int, arrival: float) -> None:
        slot = self._consumer[transfer]
        self._arrived[slot] = max(self._arrived[slot], arrival)

    # --- a SEND that does not wait for its RECV ----------------------------------------------

    def _send(self, transfer: int) -> None:
        sender = self._sender[transfer]
        begin = self._produced(transfer, SEND)
        if self._transport.program_order:
            begin = max(begin, self._free[sender])
            pair = (sender, self._receiver[transfer])
            number = self._count.get(pair, 0)
            self._count[pair] = number + 1
            if number >= self._transport.slots:
                begin = max(begin, self._received[pair][number - self._transport.slots])
            self._free[sender] = begin
        self._sent[transfer] = begin

    def _receive(self, transfer: int) -> None:
        arrival = max(self._sent[transfer] + self._takes[transfer], self._produced(transfer, RECEIVE))
        if self._transport.program_order:
            receiver = self._receiver[transfer]
            arrival = max(arrival, self._free[receiver])
            self._free[receiver] = arrival
            self._received.setdefault((self._sender[transfer], receiver), []).append(arrival)
        self.moved[transfer] = (self._sent[transfer], arrival)
        self._deliver(transfer, arrival)

    # --- rendezvous --------------------------------------------------------------------------

    def _meet(self, transfer: int) -> None:
        """Both ends of a transfer: it starts once its producer has ended and both ends are free."""
        ends = self._ends(transfer)
        turns = [self._turn(transfer, rank, peer, sends) for rank, peer, sends in ends]
        produced = (self._produced(transfer, SEND), self._produced(transfer, RECEIVE))
        begin = max(*produced, *(turn.start for turn in turns))
        end = begin + self._takes[transfer]
        for (rank, _, _), turn in zip(ends, turns, strict=True):
            turn.end = max(turn.end, end)
            if self._transport.program_order:
                self._free[rank] = max(self._free[rank], end)
        self.moved[transfer] = (begin, end)
        self._deliver(transfer, end)

    def _turn(self, transfer: int, rank: int, peer: int, sends: bool) -> _Turn:
        """The turn of a transfer at one end; the members of a group share one, in all their queues at once."""
        end = SEND if sends else RECEIVE
        group = None if self._group is None else int(self._group[transfer, end])
        if group in self._turns:
            return self._turns[group]
        members = [(transfer, end)] if group is None else self._members[group]
        queues = {self._queue_of(member, at) for member, at in members}
        if self._transport.program_order:
            free = self._free[rank]
        else:
            free = max((self._queue[queue].end for queue in queues if queue in self._queue), default=0.0)
        turn = _Turn(free, free)
        self._queue.update(dict.fromkeys(queues, turn))
        if group is not None:
            self._turns[group] = turn
        return turn

    def _queue_of(self, transfer: int, end: int) -> tuple[int, ...]:
        sender, receiver = self._sender[transfer], self._receiver[transfer]
        return self._transport.queue(*((sender, receiver, True) if end == SEND else (receiver, sender, False)))

    def _produced(self, transfer: int, end: int) -> float:
        """When all is there that an end of a transfer sends, with the group it starts in; 0 for a lone RECV."""
        if self._group is None:
            return self._end[self._producer[transfer]] if end == SEND else 0.0
        members = self._members[int(self._group[transfer, end])]
        return max((self._end[self._producer[t]] for t, at in members if at == SEND), default=0.0)

    def _ends(self, transfer: int) -> tuple[tuple[int, int, bool], tuple[int, int, bool]]:
        sender, receiver = self._sender[transfer], self._receiver[transfer]
        return (sender, receiver, True), (receiver, sender, False)


def _members(plan: Plan) -> dict[int, list[tuple[int, int]]]:
    """By group, the transfers in it, each with the end (SEND or RECEIVE) that is."""
    found: dict[int, list[tuple[int, int]]] = {}
    if plan.group is not None:
        for transfer, (_, sent, received) in enumerate(plan.group.tolist()):
            found.setdefault(sent, []).append((transfer, SEND))
            found.setdefault(received, []).append((transfer, RECEIVE))
    return found
