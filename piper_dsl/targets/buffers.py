"""Buffers for messages, used again as soon as nobody looks into them."""

from __future__ import annotations

import sys
from collections import deque

import numpy as np
import torch

__all__ = ["Buffers", "capacity"]


def _references(pool: deque[np.ndarray]) -> int:
    """How many references there are to the first array of a pool."""
    return sys.getrefcount(pool[0])


# How many there are if nobody else uses it; Pythons differ in what the question itself adds.
_OURS = _references(deque([np.empty(1)]))


def capacity(nbytes: int) -> int:
    """The next power of two: so there are few sizes, however many messages have, and what is not used of one is never
    touched, so takes no memory."""
    return 1 << max(0, nbytes - 1).bit_length()


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
        size = capacity(nbytes)
        pool = self._pools.setdefault(size, deque())
        # The one that was handed out longest ago is the likeliest to be free.
        if pool and _references(pool) <= _OURS:
            pool.rotate(-1)
        else:
            pool.append(np.empty(size, dtype=np.uint8))
        return torch.from_numpy(pool[-1][:nbytes])
