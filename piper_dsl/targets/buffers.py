"""Buffers for messages that arrive, used again as soon as nobody looks into them."""

from __future__ import annotations

import sys
from collections import deque

import numpy as np
import torch

__all__ = ["Buffers"]

_OURS = 3
"""References to an array that nobody else uses: the pool's, the variable's, and that of the question itself."""


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
        array = pool[0] if pool else None
        # The one that was handed out longest ago is the likeliest to be free.
        if array is None or sys.getrefcount(array) > _OURS:
            array = np.empty(nbytes, dtype=np.uint8)
            pool.append(array)
        else:
            pool.rotate(-1)
        return torch.from_numpy(array)

    def clear(self) -> None:
        """Forgets all buffers: other sizes are coming."""
        self._pools.clear()
