"""The clock: every rank runs its slots in order, each as soon as what it needs has arrived."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..ir.clock import run_schedule
from ..ir.costs import Costs
from ..ir.schedule import Schedule
from ..plan import PLACEMENTS, Plan, Transport, choices, place_transfers
from ..plan.completion import complete
from ..plan.plan import RECEIVE, SEND
from ..plan.written import has_transfers, read_written
from .bounds import find_bounds
from .moves import Moves
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
    the schedule does not write itself: one of :data:`piper_dsl.plan.PLACEMENTS`, or ``auto`` for the fastest
    of ``eager``, ``late`` and ``event``, and on ``ray-accelerator`` for ``ray``.

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
        wanted = choices(transport) if placement == AUTO else (placement,)
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
    start, moved = run_plan(plan, transport, durations, plan.transfers.times(costs))
    moves = Moves(plan.transfers.producer, plan.transfers.consumer, moved[:, 0], moved[:, 1])
    timeline = _timeline(plan.schedule, costs, durations, start, str(transport), moves)
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
    slots = schedule.slots
    durations = costs.durations(schedule, slots)
    run = run_schedule(schedule, durations, costs.delays(schedule))
    if len(run.order) < len(slots) or not schedule.arrivals.own_order:
        raise DoesNotComplete("the schedule waits for itself; check it first")
    return _timeline(schedule, costs, durations, run.start, "buffered")


def _timeline(
    schedule: Schedule,
    costs: Costs,
    durations: np.ndarray,
    start: np.ndarray,
    transport: str,
    moves: Moves | None = None,
) -> Timeline:
    """From slots to operations."""
    slot = schedule.slot
    alone, times = costs.single(schedule), costs.transfer_times(schedule)
    return Timeline(
        schedule=schedule,
        start=start[slot],
        end=(start + durations)[slot],
        bounds=find_bounds(schedule, durations[slot], alone, times),
        transport=transport,
        transfer_wait=0.0,
        costs=costs,
        planned=moves,
    )
