"""Places for the transfers of a schedule that says none, each one global order.

A transfer is a single step of the order. Projected on the ranks it cannot deadlock, since all ranks
then agree about what comes first.
"""

from __future__ import annotations

import numpy as np

from ..ir.clock import run_schedule
from ..ir.costs import Costs
from ..ir.operations import Kind
from ..ir.schedule import Schedule
from ..ir.slots import Slots
from .plan import COMPUTE, RECEIVE, SEND, Plan, split
from .queue_events import queue_order, queues_of
from .ray_order import ray_turns
from .stream_events import stream_order
from .transfers import Transfers, find_transfers
from .transport import Transport

__all__ = ["PLACEMENTS", "choices", "place_by_time", "place_transfers"]

PLACEMENTS = ("eager", "late", "event", "ray")


def choices(transport: Transport) -> tuple[str, ...]:
    """The placements of which ``auto`` takes the fastest: on Ray's accelerators, the one that Ray itself makes."""
    return ("ray",) if transport.name == "ray-accelerator" else ("eager", "late", "event")


def place_transfers(schedule: Schedule, placement: str, transport: Transport, costs: Costs) -> Plan:
    """The plan of a schedule whose order can run.

    ``eager``: a transfer follows its producer, in the order in which ranks that take turns get on, one
    slot a turn (the rule of PyTorch's lowering). ``late``: like eager, each transfer then deferred to
    just before its consumer, passing no other transfer of its queues. ``event``: the order of a
    simulation under ``costs`` in which a transfer starts when its queues are free at both ends; where
    computing waits for transfers, when both ranks are. ``ray``: a transfer follows its producer, in the
    order that Ray's compiled graphs would give the schedule on accelerators.
    """
    slots, transfers = schedule.slots, find_transfers(schedule)
    outgoing = _outgoing(slots, transfers)
    if placement == "event" and transport.rendezvous and transport.program_order:
        order = stream_order(schedule, transfers, outgoing, costs)
    elif placement == "event":
        order = queue_order(schedule, transfers, outgoing, transport, costs)
    elif placement == "ray":
        order = _with_transfers(ray_turns(schedule, transfers), outgoing)
    else:
        order = _with_transfers(_turns(schedule, slots), outgoing)
        if placement == "late":
            order = _deferred(order, slots, transfers, transport)
    return Plan(schedule, slots, transfers, order)


def place_by_time(schedule: Schedule, costs: Costs) -> Plan:
    """The plan for transports on which nothing waits: slots by their start, transfers behind their producers.

    There all placements take the same time, so the cheapest to find is as good as any.
    """
    slots, transfers = schedule.slots, find_transfers(schedule)
    run = run_schedule(schedule, costs.durations(schedule, slots), costs.delays(schedule))
    place = np.empty(len(slots), dtype=np.int64)
    place[run.order[np.argsort(run.start[run.order], kind="stable")]] = np.arange(len(slots))
    produced = place[schedule.slot[transfers.producer]]
    sent = np.argsort(produced, kind="stable")
    before = np.cumsum(np.bincount(produced, minlength=len(slots)))
    order = np.empty(len(slots) + 2 * len(transfers), dtype=np.int64)
    order[place + 2 * np.append(0, before)[place]] = np.arange(len(slots)) * 3 + COMPUTE
    behind = produced[sent] + 1 + 2 * np.arange(len(sent))
    order[behind], order[behind + 1] = sent * 3 + SEND, sent * 3 + RECEIVE
    return Plan(schedule, slots, transfers, order)


def _outgoing(slots: Slots, transfers: Transfers) -> list[list[int]]:
    """The transfers that every slot produces, in the order of its operations."""
    found: list[list[int]] = [[] for _ in range(len(slots))]
    produced = transfers.schedule.slot[transfers.producer]
    for transfer in np.argsort(transfers.producer, kind="stable").tolist():
        found[produced[transfer]].append(transfer)
    return found


def _turns(schedule: Schedule, slots: Slots) -> list[int]:
    """The slots in the order in which ranks that take turns run them, each one slot a turn if it can.

    The last backward of a stage takes two turns more: PyTorch reduces its gradients and drops its
    parameters there.
    """
    pauses = _reductions(schedule, slots)
    offsets, sources = slots.needs.offsets.tolist(), slots.needs.sources.tolist()
    bounds = slots.offsets.tolist()
    done = bytearray(len(slots))
    heads, ends, pausing = bounds[:-1], bounds[1:], [0] * schedule.ranks
    order: list[int] = []
    while len(order) < len(slots):
        for rank, end in enumerate(ends):
            slot = heads[rank]
            if pausing[rank]:
                pausing[rank] -= 1
            elif slot < end and all(done[s] for s in sources[offsets[slot] : offsets[slot + 1]]):
                done[slot] = 1
                heads[rank] = slot + 1
                order.append(slot)
                pausing[rank] = pauses[slot]
    return order


def _reductions(schedule: Schedule, slots: Slots) -> list[int]:
    """How many turns PyTorch spends after every slot; none where the schedule reduces its gradients itself."""
    count = np.zeros(len(slots), dtype=np.int64)
    if not np.any(schedule.kind == Kind.REDUCE_GRAD):
        ends = np.flatnonzero(np.isin(schedule.kind, (Kind.B, Kind.W)))[::-1]
        key = schedule.rank[ends].astype(np.int64) * schedule.stages + schedule.stage[ends]
        _, last = np.unique(key, return_index=True)
        np.add.at(count, schedule.slot[ends[last]], 2)
    return [int(turns) for turns in count]


def _with_transfers(slots: list[int], outgoing: list[list[int]]) -> np.ndarray:
    """Every slot followed by the transfers it produces."""
    steps = []
    for slot in slots:
        steps.append(slot * 3 + COMPUTE)
        for transfer in outgoing[slot]:
            steps += (transfer * 3 + SEND, transfer * 3 + RECEIVE)
    return np.array(steps, dtype=np.int64)


def _deferred(order: np.ndarray, slots: Slots, transfers: Transfers, transport: Transport) -> np.ndarray:
    """Every transfer moved to just before its consumer, behind no later transfer of its queues."""
    index, what = split(order)
    place = np.empty(len(slots), dtype=np.int64)
    computes = what == COMPUTE
    place[index[computes]] = np.arange(int(computes.sum()))
    needed = place[transfers.schedule.slot[transfers.consumer]].tolist()
    sender, receiver = transfers.sender.tolist(), transfers.receiver.tolist()
    ceiling: dict[tuple[int | str, ...], int] = {}
    moved: list[tuple[int, int, int]] = []
    sends = index[what == SEND].tolist()
    for number in range(len(sends) - 1, -1, -1):
        transfer = sends[number]
        queues = queues_of(transport, sender[transfer], receiver[transfer])
        latest = min([needed[transfer], *(ceiling[queue] for queue in queues if queue in ceiling)])
        ceiling.update(dict.fromkeys(queues, latest))
        moved.append((latest, number, transfer))
    steps: list[int] = []
    later = iter(sorted(moved))
    following = next(later, None)
    for number, slot in enumerate(index[computes].tolist()):
        while following is not None and following[0] <= number:
            steps += (following[2] * 3 + SEND, following[2] * 3 + RECEIVE)
            following = next(later, None)
        steps.append(slot * 3 + COMPUTE)
    return np.array(steps, dtype=np.int64)
