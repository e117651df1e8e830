"""The clock: every rank runs its slots in order, each as soon as what it needs has arrived."""

from __future__ import annotations

import numpy as np

from ..ir.needs import find_needs
from ..ir.schedule import Schedule
from ..ir.slots import Slots, find_slots
from ..ir.walk import walk
from .bounds import find_bounds
from .costs import Costs
from .timeline import Timeline

__all__ = ["DoesNotComplete", "simulate"]


class DoesNotComplete(ValueError):
    """The schedule's order has a cycle or names stages that do not exist: check it first."""


def simulate(schedule: Schedule, costs: Costs | None = None) -> Timeline:
    """When every operation starts and ends, under transfers that never wait for their receiver.

    Deterministic, in one pass. Raises :class:`DoesNotComplete` for a schedule that cannot run.
    """
    if np.any((schedule.stage < 0) | (schedule.stage >= schedule.stages)):
        raise DoesNotComplete("the schedule names stages that do not exist; check it first")
    costs = costs or Costs()
    slots = find_slots(schedule, find_needs(schedule))
    order = walk(slots.rows(), slots.needs).order
    if len(order) < len(slots):
        raise DoesNotComplete("the schedule waits for itself; check it first")
    durations = costs.durations(schedule, slots)
    delays = _delays(schedule, slots, costs.latency)
    start, cause = _run(order, slots, schedule.ranks, durations, delays)
    slot = schedule.slot
    per_operation = durations[slot]
    alone = costs.table(schedule)[schedule.kind, schedule.stage]
    first = slots.first[:-1]
    visited = np.empty(len(slots), dtype=np.int64)
    visited[order] = np.arange(len(slots))
    return Timeline(
        schedule=schedule,
        start=start[slot],
        end=(start + durations)[slot],
        cause=np.where(cause >= 0, first[cause], -1)[slot],
        visited=visited[slot],
        bounds=find_bounds(schedule, per_operation, alone, costs.latency),
        transport="buffered",
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
