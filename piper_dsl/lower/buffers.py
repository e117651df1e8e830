"""Which buffer every message is received into."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .program import Program

__all__ = ["receive_buffers"]


def receive_buffers(program: Program) -> np.ndarray:
    """The buffer of every RECV, -1 for other instructions; int32.

    Messages of one rank that have the same stages at their ends, and so the same shapes, share buffers 0, 1, …
    A buffer is taken from the RECV to the FREE of its stage and microbatch, each time the lowest that is free: so
    there are as many as messages are held at a time, and no fewer would do. Linear time, but for the heap.
    """
    from .program import Code

    buffers = np.full(len(program), -1, dtype=np.int32)
    for start, end in zip(program.offsets.tolist(), program.offsets[1:].tolist(), strict=False):
        free: dict[tuple[int, int, int], list[int]] = {}
        count: dict[tuple[int, int, int], int] = {}
        held: dict[tuple[int, int], list[tuple[tuple[int, int, int], int]]] = {}
        for index, (code, stage, microbatch, _, peer_stage) in enumerate(program.columns[start:end].tolist(), start):
            if code in (Code.RECV_F, Code.RECV_B):
                ends = (code, stage, peer_stage)
                if free.get(ends):
                    buffer = heapq.heappop(free[ends])
                else:
                    buffer = count[ends] = count.get(ends, -1) + 1
                buffers[index] = buffer
                held.setdefault((stage, microbatch), []).append((ends, buffer))
            elif code == Code.FREE:
                for ends, buffer in held.pop((stage, microbatch), ()):
                    heapq.heappush(free.setdefault(ends, []), buffer)
    return buffers
