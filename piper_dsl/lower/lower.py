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
from ..plan.plan import COMPUTE, split
from ..plan.written import has_transfers
from ..simulate.engine import AUTO, plan_and_simulate
from .program import Code, Program

__all__ = ["lower"]

_USES = np.isin(np.arange(Code.FREE + 1), (*COMPUTE_KINDS, Code.SEND_F, Code.SEND_B))
"""By code: whether it uses what its rank holds of a (stage, microbatch)."""


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
    columns, rank = _catalogue(plan)
    order = _with_frees(_order(plan), columns, schedule)
    # The smallest type that holds a rank: of 16 bits and less numpy sorts stably in linear time.
    rank = rank.astype(np.min_scalar_type(schedule.ranks))[order]
    by_rank = np.argsort(rank, kind="stable")
    place = np.empty_like(by_rank)
    place[by_rank] = np.arange(len(by_rank))
    return Program(
        name=schedule.name,
        microbatches=schedule.microbatches,
        placement=schedule.placement,
        graph=schedule.graph,
        columns=columns[order[by_rank]],
        offsets=np.append(0, np.cumsum(np.bincount(rank, minlength=schedule.ranks))),
        order=place,
    )


def _catalogue(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """Every instruction there may be, in any order: its columns (see :class:`Program`) and its rank.

    Operations as the schedule numbers them, then the SEND of every transfer, the RECV of every transfer, and the
    FREE of every (stage, microbatch).
    """
    schedule, transfers = plan.schedule, plan.transfers
    count, moved, keys = len(schedule), len(transfers), schedule.stages * schedule.microbatches
    columns = np.full((count + 2 * moved + keys, 5), -1, dtype=np.int32)
    operations, sends, receives, frees = np.split(columns, np.cumsum([count, moved, moved]))
    operations[:, 0], operations[:, 1], operations[:, 2] = schedule.kind, schedule.stage, schedule.microbatch
    sends[:, 0] = np.where(transfers.forward, Code.SEND_F, Code.SEND_B)
    receives[:, 0] = np.where(transfers.forward, Code.RECV_F, Code.RECV_B)
    sends[:, 1], sends[:, 3], sends[:, 4] = transfers.source, transfers.receiver, transfers.target
    receives[:, 1], receives[:, 3], receives[:, 4] = transfers.target, transfers.sender, transfers.source
    sends[:, 2] = receives[:, 2] = transfers.microbatch
    frees[:, 0] = Code.FREE
    frees[:, 1], frees[:, 2] = np.divmod(np.arange(keys), max(1, schedule.microbatches))
    owner = schedule.placement.rank_of.ravel()
    return columns, np.concatenate([schedule.rank, transfers.sender, transfers.receiver, owner])


def _order(plan: Plan) -> np.ndarray:
    """The steps of a plan in its order, as numbers of the catalogue; slots as the operations they hold."""
    schedule, first = plan.schedule, plan.slots.first
    index, what = split(plan.order)
    behind: np.ndarray = np.array([0, len(schedule), len(schedule) + len(plan.transfers)])[what]
    if len(plan.slots) == len(schedule):
        return np.asarray(index + behind)
    start, held = index.copy(), np.ones(len(index), dtype=np.int64)
    computes = what == COMPUTE
    start[computes], held[computes] = first[index[computes]], np.diff(first)[index[computes]]
    within = np.arange(held.sum()) - np.repeat(np.cumsum(held) - held, held)
    return np.asarray(np.repeat(start + behind, held) + within)


def _with_frees(order: np.ndarray, columns: np.ndarray, schedule: Schedule) -> np.ndarray:
    """FREE behind the last that a rank does with a (stage, microbatch), its sends included.

    What the schedule writes of transfers is left out: the plan has them as steps of its own.
    """
    if has_transfers(schedule):
        order = order[(order >= len(schedule)) | ~np.isin(columns[order, 0], TRANSFERS)]
    uses = np.flatnonzero(_USES[columns[order, 0]])
    key = columns[order[uses], 1].astype(np.int64) * schedule.microbatches + columns[order[uses], 2]
    last = np.full(schedule.stages * schedule.microbatches, -1)
    last[key] = uses
    freed = np.flatnonzero(last >= 0)
    return np.asarray(np.insert(order, last[freed] + 1, len(columns) - len(last) + freed))
