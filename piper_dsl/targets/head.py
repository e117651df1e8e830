"""What a message between process groups says of itself, before its tensors."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import torch

__all__ = ["HEAD", "Head"]

HEAD = 64
"""Bytes before the tensors: a multiple of what these are aligned to."""
_WORDS = struct.Struct("=3q")


@dataclass(frozen=True)
class Head:
    """One that is not ``good`` stands for a message that a rank which failed did not compute."""

    step: int
    tag: int
    good: bool

    def write(self, buffer: torch.Tensor) -> None:
        words = (self.step, self.tag, self.good)
        if buffer.device.type == "cpu":
            # This takes a fraction of torch's time for three numbers.
            _WORDS.pack_into(buffer.numpy().data, 0, *words)
        else:
            buffer[: _WORDS.size].view(torch.int64).copy_(torch.tensor(words))

    @classmethod
    def read(cls, buffer: torch.Tensor) -> Head:
        words = buffer if buffer.device.type == "cpu" else buffer[: _WORDS.size].cpu()
        step, tag, good = _WORDS.unpack_from(words.numpy().data)
        return cls(step, tag, bool(good))
