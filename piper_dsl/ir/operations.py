"""The kinds of operations and the operation as a value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

__all__ = ["BACKWARD", "COMPUTE", "PER_MICROBATCH", "TRANSFERS", "Kind", "Operation"]


class Kind(IntEnum):
    """What an operation does; the names are the tokens of the language and of PyTorch."""

    F = 0
    B = 1
    I = 2  # noqa: E741 - the field's name for the input-gradient half
    W = 3
    R = 4
    OPT = 5
    REDUCE_GRAD = 6
    UNSHARD = 7
    RESHARD = 8
    SEND_F = 9
    RECV_F = 10
    SEND_B = 11
    RECV_B = 12

    @property
    def description(self) -> str:
        return _DESCRIPTIONS[self]


_DESCRIPTIONS = {
    Kind.F: "forward",
    Kind.B: "backward",
    Kind.I: "input gradient",
    Kind.W: "weight gradient",
    Kind.R: "recompute",
    Kind.OPT: "optimizer step",
    Kind.REDUCE_GRAD: "gradient reduction",
    Kind.UNSHARD: "gather of parameters",
    Kind.RESHARD: "release of parameters",
    Kind.SEND_F: "send of an activation",
    Kind.RECV_F: "receive of an activation",
    Kind.SEND_B: "send of a gradient",
    Kind.RECV_B: "receive of a gradient",
}

COMPUTE = (Kind.F, Kind.B, Kind.I, Kind.W, Kind.R)
"""Kinds that run a stage on a microbatch."""

BACKWARD = (Kind.B, Kind.I, Kind.W)
"""Kinds that are a backward or a part of one."""

TRANSFERS = (Kind.SEND_F, Kind.RECV_F, Kind.SEND_B, Kind.RECV_B)
"""Kinds that move a tensor between ranks."""

PER_MICROBATCH = COMPUTE + TRANSFERS
"""Kinds that carry a microbatch; the others concern a stage as a whole."""


@dataclass(frozen=True, order=True)
class Operation:
    """The key of an operation. Where it runs is the placement's answer, not part of it."""

    kind: Kind
    stage: int
    microbatch: int | None = None

    def __str__(self) -> str:
        return f"{self.stage}{self.kind.name}{'' if self.microbatch is None else self.microbatch}"
