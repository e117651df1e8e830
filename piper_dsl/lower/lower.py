"""From a checked schedule to a Program: the steps of a plan, spelled out for an interpreter.

The plan has every transfer as one step of one global order, and each rank keeps of the order what
concerns it. No two ranks can then disagree about what comes first, which is why a lowered program
cannot stall (the idea of JaxPP's lowering; see docs/semantics.md).
"""

from __future__ import annotations

import numpy as np

from ..check import check
from ..diagnostics import PipeError
from ..ir.costs import Costs
from ..ir.operations import COMPUTE as COMPUTE_KINDS
from ..ir.operations import TRANSFERS
from ..ir.schedule import Schedule
from ..plan import Plan, Transport
from ..plan.orders import place_by_time
from ..plan.plan import COMPUTE, SEND, split
from ..plan.written import has_transfers
from ..simulate.engine import AUTO, plan_and_simulate
from .program import Code, Program

__all__ = ["lower"]

COMPUTE_CODES = tuple(Code(kind) for kind in COMPUTE_KINDS)


def lower(
    schedule: Schedule, transport: str = "buffered", placement: str = AUTO, costs: Costs | None = None
) -> Program:
    """The program of a schedule on a transport; its transfers as written, or placed as ``placement`` says.

    ``auto`` takes the placement that simulates fastest under ``costs``. Raises :class:`PipeError` for a
    schedule that does not check on the transport, ValueError for an unknown transport or placement.
    """
    findings = check(schedule, transport)
    if findings:
        raise PipeError(*findings)
    return _program(_plan(schedule, Transport.parse(transport), placement, costs or Costs()))


def _plan(schedule: Schedule, transport: Transport, placement: str, costs: Costs) -> Plan:
    if placement == AUTO and transport.name == "buffered" and not has_transfers(schedule):
        return place_by_time(schedule, costs)
    return plan_and_simulate(schedule, costs, transport, placement)[0]


def _program(plan: Plan) -> Program:
    schedule = plan.schedule
    computes, operation, columns = _instructions(plan)
    rank = np.empty(len(columns), dtype=np.int64)
    rank[computes] = schedule.rank[operation]
    rank[~computes] = plan.rank[split(plan.order)[1] != COMPUTE]
    key = np.arange(len(columns)) * 2
    free_rank, free_key, free_columns = _frees(schedule, columns, key)
    rank, key = np.concatenate([rank, free_rank]), np.concatenate([key, free_key])
    columns = np.concatenate([columns, free_columns]).astype(np.int32)
    by_rank = np.argsort(rank * (2 * len(columns) + 2) + key, kind="stable")
    return Program(
        name=schedule.name,
        microbatches=schedule.microbatches,
        placement=schedule.placement,
        graph=schedule.graph,
        columns=columns[by_rank],
        offsets=np.searchsorted(rank[by_rank], np.arange(schedule.ranks + 1)),
        order=np.argsort(key[by_rank], kind="stable"),
    )


def _instructions(plan: Plan) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The instructions of a plan's order: which compute, the operations of those, and the columns of all."""
    schedule, transfers = plan.schedule, plan.transfers
    index, what = split(plan.order)
    first = plan.slots.first
    counts = np.where(what == COMPUTE, np.diff(first)[np.where(what == COMPUTE, index, 0)], 1)
    step = np.repeat(np.arange(len(index)), counts)
    within = np.arange(len(step)) - np.repeat(np.cumsum(counts) - counts, counts)
    computes = what[step] == COMPUTE
    operation = first[index[step[computes]]] + within[computes]
    written = np.isin(schedule.kind[operation], TRANSFERS)
    if written.any():
        keep = np.ones(len(step), dtype=bool)
        keep[np.flatnonzero(computes)[written]] = False
        step, computes, operation = step[keep], computes[keep], operation[~written]
    columns = np.full((len(step), 5), -1, dtype=np.int64)
    columns[computes, :3] = np.stack([schedule.kind, schedule.stage, schedule.microbatch], axis=1)[operation]
    moved, sends = index[step[~computes]], what[step[~computes]] == SEND
    forward = transfers.forward[moved]
    codes = np.where(sends, np.where(forward, Code.SEND_F, Code.SEND_B), np.where(forward, Code.RECV_F, Code.RECV_B))
    own = np.where(sends, transfers.source[moved], transfers.target[moved])
    other = np.where(sends, transfers.target[moved], transfers.source[moved])
    peer = np.where(sends, transfers.receiver[moved], transfers.sender[moved])
    columns[~computes] = np.stack([codes, own, transfers.microbatch[moved], peer, other], axis=1)
    return computes, operation, columns


def _frees(schedule: Schedule, columns: np.ndarray, key: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """FREE behind the last that a rank does with a (stage, microbatch), its sends included."""
    shape = (schedule.stages, schedule.microbatches)
    last = np.full(shape, -1, dtype=np.int64)
    uses = np.isin(columns[:, 0], (*COMPUTE_CODES, Code.SEND_F, Code.SEND_B))
    np.maximum.at(last, (columns[uses, 1], columns[uses, 2]), key[uses])
    stage, microbatch = np.nonzero(last >= 0)
    freed = np.full((len(stage), 5), -1, dtype=np.int64)
    freed[:, 0], freed[:, 1], freed[:, 2] = Code.FREE, stage, microbatch
    return schedule.placement.rank_of[stage, microbatch].astype(np.int64), last[stage, microbatch] + 1, freed
