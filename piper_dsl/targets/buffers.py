"""Buffers for messages that arrive, used again as soon as nobody looks into them."""

from __future__ import annotations

import sys
from collections import deque

import numpy as np
import torch

__all__ = ["Buffers"]


def _references(pool: deque[np.ndarray]) -> int:
    """How many references there are to the first array of a pool."""
    return sys.getrefcount(pool[0])


# How many there are if nobody else uses it; Pythons differ in what the question itself adds.
_OURS = _references(deque([np.empty(1)]))


class Buffers:
    """Flat uint8 tensors. On the CPU each lies in a numpy array of ours, which every tensor that looks into it
    keeps alive: the count of references tells when it is free. On a GPU torch's own allocator does as much.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._pools: dict[int, deque[np.ndarray]] = {}

    def take(self, nbytes: int) -> torch.Tensor:
        """A buffer that no tensor looks into; its content is whatever it was."""
        if self._device != "cpu":
            return torch.empty(nbytes, dtype=torch.uint8, device=self._device)
        pool = self._pools.setdefault(nbytes, deque())
        # The one that was handed out longest ago is the likeliest to be free.
        if pool and _references(pool) <= _OURS:
            pool.rotate(-1)
        else:
            pool.append(np.empty(nbytes, dtype=np.uint8))
        return torch.from_numpy(pool[-1])

    def clear(self) -> None:
        """Forgets all buffers: other sizes are coming."""
        self._pools.clear()
