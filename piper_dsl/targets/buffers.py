"""Buffers for messages, used again as soon as nobody looks into them."""

from __future__ import annotations

from weakref import finalize

import numpy as np
import torch

__all__ = ["Buffers", "capacity"]


def capacity(nbytes: int) -> int:
    """The next power of two: so there are few sizes, however many messages have, and what is not used of one is never
    touched, so takes no memory."""
    return 1 << max(0, nbytes - 1).bit_length()


class Buffers:
    """Flat uint8 tensors. On the CPU each lies in a numpy array of ours, which is free again when the last tensor that
    looks into it is gone. On a GPU torch's own allocator does as much.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._free: dict[int, list[np.ndarray]] = {}

    def take(self, nbytes: int) -> torch.Tensor:
        """A buffer that no tensor looks into; its content is whatever it was."""
        if self._device != "cpu":
            return torch.empty(nbytes, dtype=torch.uint8, device=self._device)
        size = capacity(nbytes)
        free = self._free.setdefault(size, [])
        array = free.pop() if free else np.empty(size, dtype=np.uint8)
        # This view of it lives as long as the memory of tensors that are made from it, and is known to nobody else.
        window = array[:nbytes]
        finalize(window, free.append, array).atexit = False
        return torch.from_numpy(window)
