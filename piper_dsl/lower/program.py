"""The Program: one instruction list per rank, so that a runtime is a plain interpreter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np

from ..ir.graph import StageGraph
from ..ir.operations import Kind, Operation
from ..ir.placement import Placement
from .buffers import receive_buffers

__all__ = ["FORWARDS", "Code", "Instruction", "Program"]

FORMAT = 2
_FIELDS = ("code", "stage", "microbatch", "peer", "peer_stage", "buffer")


class Code(IntEnum):
    """What an instruction does: the kinds of operations, with their numbers, and FREE."""

    F = Kind.F
    B = Kind.B
    I = Kind.I  # noqa: E741 - the field's name for the input-gradient half
    W = Kind.W
    R = Kind.R
    OPT = Kind.OPT
    REDUCE_GRAD = Kind.REDUCE_GRAD
    UNSHARD = Kind.UNSHARD
    RESHARD = Kind.RESHARD
    SEND_F = Kind.SEND_F
    RECV_F = Kind.RECV_F
    SEND_B = Kind.SEND_B
    RECV_B = Kind.RECV_B
    FREE = 100


FORWARDS = (Code.F, Code.SEND_F, Code.RECV_F)
"""What is left of a program that only evaluates. In any order that runs, these alone run too."""


@dataclass(frozen=True)
class Instruction:
    """One instruction of a rank.

    ``peer`` and ``peer_stage`` are the rank and the stage at the other end of a transfer, ``buffer`` is what
    a RECV receives into (see :func:`piper_dsl.lower.buffers.receive_buffers`). FREE drops what a rank still
    holds of a microbatch of a stage.
    """

    code: Code
    stage: int
    microbatch: int | None = None
    peer: int | None = None
    peer_stage: int | None = None
    buffer: int | None = None

    @property
    def operation(self) -> Operation:
        """The operation this instruction is; raises ValueError for FREE."""
        return Operation(Kind(self.code), self.stage, self.microbatch)

    def __str__(self) -> str:
        name = f"{self.stage}{self.code.name}{'' if self.microbatch is None else self.microbatch}"
        return name if self.peer is None else f"{name}→{self.peer}" if "SEND" in name else f"{name}←{self.peer}"


@dataclass(frozen=True, eq=False)
class Program:
    """Instructions as arrays of one entry an instruction; those of rank ``r`` are
    ``offsets[r]`` to ``offsets[r + 1]``, in the order they run.

    ``columns`` is int32 of shape (instructions, 5): code, stage, microbatch, peer, peer stage; -1 is
    none. ``order`` lists all instructions in one global order that respects every rank's own, every
    need, and puts a SEND before its RECV: whoever follows it alone never waits.
    """

    name: str
    microbatches: int
    placement: Placement
    graph: StageGraph
    columns: np.ndarray
    offsets: np.ndarray
    order: np.ndarray

    @property
    def ranks(self) -> int:
        return len(self.offsets) - 1

    @property
    def stages(self) -> int:
        return self.graph.stages

    @cached_property
    def buffers(self) -> np.ndarray:
        """The buffer of every RECV, -1 for other instructions; int32."""
        return receive_buffers(self)

    def __len__(self) -> int:
        return len(self.columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self.to_json() == other.to_json()

    def instruction(self, index: int) -> Instruction:
        """An instruction by its index in the arrays."""
        code, stage, *numbers = self.columns[index].tolist()
        rest = (None if number < 0 else number for number in (*numbers, int(self.buffers[index])))
        return Instruction(Code(code), stage, *rest)

    def row(self, rank: int) -> tuple[Instruction, ...]:
        """What a rank executes, in order."""
        return tuple(self.instruction(i) for i in range(int(self.offsets[rank]), int(self.offsets[rank + 1])))

    def in_order(self) -> Iterator[tuple[int, Instruction]]:
        """Every instruction with its rank, in the global order."""
        rank = np.repeat(np.arange(self.ranks), np.diff(self.offsets))
        for index in self.order.tolist():
            yield int(rank[index]), self.instruction(index)

    def to_json(self) -> str:
        """The program as JSON text; :meth:`from_json` reads it back the same."""
        position = np.empty(len(self), dtype=np.int64)
        position[self.order] = np.arange(len(self))
        columns = np.column_stack([self.columns, self.buffers])
        rows = [
            [[Code(code).name, *numbers] for code, *numbers in columns[start:end].tolist()]
            for start, end in zip(self.offsets, self.offsets[1:], strict=False)
        ]
        document = {
            "format": FORMAT,
            "name": self.name,
            "microbatches": self.microbatches,
            "stages": self.stages,
            "edges": [list(edge) for edge in self.graph.edges],
            "rank_of": self.placement.rank_of.tolist(),
            "fields": list(_FIELDS),
            "ranks": rows,
            "order": position.tolist(),
        }
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str) -> Program:
        """Reads what :meth:`to_json` wrote. Raises ValueError for anything else."""
        try:
            document = json.loads(text)
            if document["format"] != FORMAT:
                raise ValueError(f"format {document['format']}, expected {FORMAT}")
            return cls._from_document(document)
        except (KeyError, TypeError, IndexError, ValueError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a program: {error}") from error

    @classmethod
    def _from_document(cls, document: dict[str, Any]) -> Program:
        rows = document["ranks"]
        flat = np.array([[Code[code], *numbers] for row in rows for code, *numbers in row], dtype=np.int32).reshape(
            -1, len(_FIELDS)
        )
        position = np.array(document["order"], dtype=np.int64)
        if not np.array_equal(np.sort(position), np.arange(len(flat))):
            raise ValueError("its order does not list every instruction once")
        program = cls(
            name=document["name"],
            microbatches=document["microbatches"],
            placement=Placement(np.array(document["rank_of"], dtype=np.int32), len(rows)),
            graph=StageGraph(document["stages"], tuple((a, b) for a, b in document["edges"])),
            columns=flat[:, :-1],
            offsets=np.cumsum([0, *(len(row) for row in rows)]),
            order=np.argsort(position),
        )
        if not np.array_equal(program.buffers, flat[:, -1]):
            raise ValueError("its messages are received into other buffers than its order has free")
        return program
