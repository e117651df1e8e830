"""One rank's instructions as what an interpreter does: compute with what arrives, send, post a receive, free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..ir.operations import Kind, Operation
from ..lower.program import FORWARDS, Code, Instruction, Program

__all__ = ["Action", "Compute", "Free", "Post", "Send", "Transfer", "meets", "pairs", "row_actions"]

_DIRECTIONS = {Code.F: Kind.F, Code.B: Kind.B, Code.I: Kind.B}
"""The operations that take messages and give them."""

_Key = tuple[Kind, int, int | None]
"""Direction, stage and microbatch of what is passed on."""


@dataclass(frozen=True)
class Transfer:
    """A message between two ranks as one of them sees it: direction (F or B), stages, microbatch, the other rank.

    ``tag`` is the message's own number within a step, the same at both ends.
    """

    kind: Kind
    source: int
    target: int
    microbatch: int
    peer: int
    tag: int


@dataclass(frozen=True)
class Compute:
    """An operation, and the messages it takes from other ranks."""

    operation: Operation
    receives: tuple[Transfer, ...]


@dataclass(frozen=True)
class Send:
    """What ``producer`` has for a stage on another rank leaves."""

    transfer: Transfer
    producer: Operation


@dataclass(frozen=True)
class Post:
    """A message may arrive from here on."""

    transfer: Transfer


@dataclass(frozen=True)
class Free:
    """What is held of a microbatch is dropped."""

    stage: int
    microbatch: int


Action = Compute | Send | Post | Free


def row_actions(program: Program, rank: int, training: bool = True) -> list[Action]:
    """What a rank does in a step, in order; in one that is not ``training``, the forwards alone."""
    row = [i for i in program.row(rank) if training or i.code in FORWARDS]
    arriving: dict[_Key, list[Transfer]] = {}
    for instruction in row:
        if instruction.code in (Code.RECV_F, Code.RECV_B):
            transfer = _transfer(program, instruction)
            arriving.setdefault((transfer.kind, transfer.target, transfer.microbatch), []).append(transfer)
    return list(_actions(program, row, arriving))


def meets(program: Program) -> bool:
    """Whether every RECV stands right behind its SEND in the global order, FREEs apart.

    Then the program also runs where a send waits for its receive. The compiler places all transfers so; in
    a schedule that writes its own, they may count on messages that wait.
    """
    columns = program.columns[program.order]
    columns = columns[columns[:, 0] != Code.FREE]
    sends = np.flatnonzero(np.isin(columns[:, 0], (Code.SEND_F, Code.SEND_B)))
    if len(sends) and sends[-1] + 1 == len(columns):
        return False
    sent, received = columns[sends], columns[sends + 1]
    wanted = np.where(sent[:, 0] == Code.SEND_F, Code.RECV_F, Code.RECV_B)
    same = (received[:, 0] == wanted) & (received[:, 2] == sent[:, 2])
    return bool(np.all(same & (received[:, 1] == sent[:, 4]) & (received[:, 4] == sent[:, 1])))


def pairs(program: Program) -> tuple[tuple[int, int], ...]:
    """Sender and receiver of every link that a program uses."""
    sends = ((r, i.peer) for r, i in program.in_order() if i.code in (Code.SEND_F, Code.SEND_B))
    return tuple(sorted({(rank, peer) for rank, peer in sends if peer is not None}))


def _actions(program: Program, row: Iterable[Instruction], arriving: dict[_Key, list[Transfer]]) -> Iterable[Action]:
    produced: dict[_Key, Operation] = {}
    for instruction in row:
        code, stage, microbatch = instruction.code, instruction.stage, instruction.microbatch
        if code in (Code.SEND_F, Code.SEND_B):
            transfer = _transfer(program, instruction)
            yield Send(transfer, produced[transfer.kind, stage, microbatch])
        elif code in (Code.RECV_F, Code.RECV_B):
            yield Post(_transfer(program, instruction))
        elif code is Code.FREE and microbatch is not None:
            yield Free(stage, microbatch)
        elif (direction := _DIRECTIONS.get(code)) is not None:
            produced[direction, stage, microbatch] = instruction.operation
            yield Compute(instruction.operation, tuple(arriving.get((direction, stage, microbatch), ())))
        else:
            yield Compute(instruction.operation, ())


def _transfer(program: Program, instruction: Instruction) -> Transfer:
    own, other, microbatch = instruction.stage, instruction.peer_stage, instruction.microbatch
    assert other is not None
    assert microbatch is not None
    assert instruction.peer is not None
    sends = instruction.code in (Code.SEND_F, Code.SEND_B)
    source, target = (own, other) if sends else (other, own)
    kind = Kind.F if instruction.code in (Code.SEND_F, Code.RECV_F) else Kind.B
    tag = ((int(kind) * program.stages + source) * program.stages + target) * program.microbatches + microbatch
    return Transfer(kind, source, target, microbatch, instruction.peer, tag)
