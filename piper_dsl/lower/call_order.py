"""Where the reads and writes of a Ray DAG's calls go, so that they follow a program."""

from __future__ import annotations

from ..ir.operations import Kind
from .binds import BindPlan
from .program import Code, Program

__all__ = ["COMPUTE", "READ", "WRITE", "CallStep", "call_order"]

READ, COMPUTE, WRITE = "READ", "COMPUTE", "WRITE"
CallStep = tuple[int, str]
"""A part of a call: its number on its rank (0 loads the data, the last one ends the step), and which part."""

_TRANSFERS = {Code.SEND_F: WRITE, Code.SEND_B: WRITE, Code.RECV_F: READ, Code.RECV_B: READ}


def call_order(program: Program, plan: BindPlan) -> list[list[CallStep]]:
    """Every part of every call of each rank, in order.

    Messages are written and read where the program sends and receives them; what only goes from call to call
    on a rank, right where it is made and needed.
    """
    return [_rank_order(program, plan, rank) for rank in range(program.ranks)]


def _rank_order(program: Program, plan: BindPlan, rank: int) -> list[CallStep]:
    mine = [bind for bind in plan.binds if bind.rank == rank]
    moving = {
        (bind.operation.kind is Kind.F, bind.operation.stage, bind.operation.microbatch): call
        for call, bind in enumerate(mine, start=1)
        if bind.operation.kind in (Kind.F, Kind.B, Kind.I)
    }
    calls = iter(enumerate(mine, start=1))
    steps: list[CallStep] = [(0, READ), (0, COMPUTE), (0, WRITE)]
    for instruction in program.row(rank):
        if instruction.code in _TRANSFERS:
            forward = instruction.code in (Code.SEND_F, Code.RECV_F)
            call = moving[forward, instruction.stage, instruction.microbatch]
            steps.append((call, _TRANSFERS[instruction.code]))
        elif instruction.code is not Code.FREE:
            call, bind = next(calls)
            steps += [(call, READ)] * (not bind.receives) + [(call, COMPUTE)] + [(call, WRITE)] * (not bind.targets)
    return [*steps, *((len(mine) + 1, part) for part in (READ, COMPUTE, WRITE))]
