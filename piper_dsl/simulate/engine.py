"""The clock: every rank runs its slots in order, each as soon as what it needs has arrived."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..ir.costs import Costs
from ..ir.needs import find_needs
from ..ir.schedule import Schedule
from ..ir.slots import Slots, find_slots
from ..ir.walk import walk
from ..plan import PLACEMENTS, Plan, Transport, place_transfers
from ..plan.completion import complete
from ..plan.plan import COMPUTE, RECEIVE, SEND, split
from ..plan.written import has_transfers, read_written
from .bounds import find_bounds
from .timeline import Timeline
from .transports import run_plan

__all__ = ["DoesNotComplete", "plan_and_simulate", "simulate"]

AUTO = "auto"


class DoesNotComplete(ValueError):
    """The schedule cannot run, or its transfers do not complete on the transport: check it first."""


def simulate(
    schedule: Schedule, costs: Costs | None = None, transport: str = "buffered", placement: str = AUTO
) -> Timeline:
    """When every operation starts and ends. Deterministic.

    ``transport`` is one of :data:`piper_dsl.plan.TRANSPORTS`. ``placement`` says where transfers go that
    the schedule does not write itself: ``eager``, ``late``, ``event``, or ``auto`` for the fastest of them.

    Raises :class:`DoesNotComplete` for a schedule that cannot run, ValueError for an unknown name.
    """
    chosen = Transport.parse(transport)
    if placement not in (AUTO, *PLACEMENTS):
        raise ValueError(f"there is no placement `{placement}`; there are {AUTO}, {', '.join(PLACEMENTS)}")
    timeline = _simulate_buffered(schedule, costs or Costs())
    if chosen.name == "buffered":
        return timeline
    _, waited = plan_and_simulate(schedule, costs or Costs(), chosen, placement)
    return replace(waited, transfer_wait=waited.makespan - timeline.makespan)


def plan_and_simulate(
    schedule: Schedule, costs: Costs, transport: Transport, placement: str = AUTO
) -> tuple[Plan, Timeline]:
    """The plan of a schedule's transfers on a transport, and its timeline.

    Raises :class:`DoesNotComplete` where the schedule writes transfers that do not complete.
    """
    if has_transfers(schedule):
        plans = [_written_plan(schedule, transport)]
    else:
        wanted = PLACEMENTS if placement == AUTO else (placement,)
        plans = [place_transfers(schedule, name, transport, costs) for name in wanted]
    timelines = [_simulate_plan(plan, costs, transport) for plan in plans]
    fastest = min(range(len(plans)), key=lambda k: timelines[k].makespan)
    return plans[fastest], timelines[fastest]


def _written_plan(schedule: Schedule, transport: Transport) -> Plan:
    written = read_written(schedule)
    completion = complete(written, transport)
    if completion.cycle or written.strays or (written.operation[:, 1:] < 0).any():
        raise DoesNotComplete(f"the transfers do not complete on transport {transport}; check it first")
    return Plan(schedule, written.slots, written.transfers, completion.order, written.group, written.operation)


def _simulate_plan(plan: Plan, costs: Costs, transport: Transport) -> Timeline:
    durations = costs.durations(plan.schedule, plan.slots)
    start, cause, moved = run_plan(plan, transport, durations, costs.latency)
    index, what = split(plan.order)
    computed = index[what == COMPUTE]
    timeline = _timeline(plan.schedule, plan.slots, costs, durations, start, cause, computed, str(transport))
    return timeline if plan.operation is None else _with_transfers(timeline, plan.operation, moved)


def _with_transfers(timeline: Timeline, operation: np.ndarray, moved: np.ndarray) -> Timeline:
    """The timeline with the times of the transfers that the schedule writes itself."""
    start, end = timeline.start.copy(), timeline.end.copy()
    for column in (SEND, RECEIVE):
        start[operation[:, column]], end[operation[:, column]] = moved[:, 0], moved[:, 1]
    return replace(timeline, start=start, end=end)


def _simulate_buffered(schedule: Schedule, costs: Costs) -> Timeline:
    """Under transfers that never wait for their receiver, in one pass over the slots."""
    if np.any((schedule.stage < 0) | (schedule.stage >= schedule.stages)):
        raise DoesNotComplete("the schedule names stages that do not exist; check it first")
    slots = find_slots(schedule, find_needs(schedule))
    order = walk(slots.rows(), slots.needs).order
    if len(order) < len(slots):
        raise DoesNotComplete("the schedule waits for itself; check it first")
    durations = costs.durations(schedule, slots)
    start, cause = _run(order, slots, schedule.ranks, durations, _delays(schedule, slots, costs.latency))
    return _timeline(schedule, slots, costs, durations, start, cause, np.array(order, dtype=np.int64), "buffered")


def _timeline(
    schedule: Schedule,
    slots: Slots,
    costs: Costs,
    durations: np.ndarray,
    start: np.ndarray,
    cause: np.ndarray,
    order: np.ndarray,
    transport: str,
) -> Timeline:
    """From slots, visited in ``order``, to operations."""
    slot, first = schedule.slot, slots.first[:-1]
    visited = np.zeros(len(slots), dtype=np.int64)
    visited[order] = np.arange(len(order))
    alone = costs.table(schedule)[schedule.kind, schedule.stage]
    return Timeline(
        schedule=schedule,
        start=start[slot],
        end=(start + durations)[slot],
        cause=np.where(cause >= 0, first[cause], -1)[slot],
        visited=visited[slot],
        bounds=find_bounds(schedule, durations[slot], alone, costs.latency),
        transport=transport,
        transfer_wait=0.0,
    )


def _delays(schedule: Schedule, slots: Slots, latency: float) -> np.ndarray:
    """How long the result of every need travels: ``latency`` between ranks, else 0."""
    rank = schedule.rank[slots.first[:-1]]
    needing = np.repeat(rank, np.diff(slots.needs.offsets))
    return np.where(needing != rank[slots.needs.sources], latency, 0.0)


def _run(
    order: list[int], slots: Slots, ranks: int, durations: np.ndarray, delays: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Start and cause of every slot, visited in an order that respects all needs."""
    offsets, sources = slots.needs.offsets.tolist(), slots.needs.sources.tolist()
    lasting, delay = durations.tolist(), delays.tolist()
    rank_of = np.repeat(np.arange(ranks), np.diff(slots.offsets)).tolist()
    start, end = [0.0] * len(order), [0.0] * len(order)
    cause = [-1] * len(order)
    free, last = [0.0] * ranks, [-1] * ranks
    for slot in order:
        rank = rank_of[slot]
        begin, because = free[rank], last[rank]
        for need in range(offsets[slot], offsets[slot + 1]):
            source = sources[need]
            arrival = end[source] + delay[need]
            if arrival > begin:
                begin, because = arrival, source
        start[slot], cause[slot] = begin, because
        end[slot] = free[rank] = begin + lasting[slot]
        last[rank] = slot
    return np.array(start), np.array(cause, dtype=np.int64)
