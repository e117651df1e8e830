"""How a message lies in one flat buffer, so that it travels as one: a head, then its tensors."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch

from .message import Message

__all__ = ["Head", "Layout"]

HEAD = 64
"""Bytes before the tensors."""
_WORDS = struct.Struct("=3q")
ALIGNED = 16
"""Every tensor begins at a multiple of this."""


@dataclass(frozen=True)
class Head:
    """What a message says of itself. One that is not ``good`` stands for what a rank that failed did not compute."""

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


@dataclass(frozen=True)
class Layout:
    """Shapes and dtypes of the tensors of a message, and which of them need a gradient."""

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    needs_grad: tuple[bool, ...]

    @classmethod
    def of(cls, message: Message) -> Layout:
        shapes = tuple(tuple(x.shape) for x in message.tensors)
        return _layout(shapes, tuple(x.dtype for x in message.tensors), message.needs_grad)

    def __reduce__(self) -> tuple[Any, ...]:
        return _layout, (self.shapes, self.dtypes, self.needs_grad)

    @cached_property
    def _parts(self) -> tuple[tuple[int, int], ...]:
        """Where every tensor begins and ends, in bytes."""
        parts, start = [], HEAD
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            end = start + math.prod(shape) * dtype.itemsize
            parts.append((start, end))
            start = -(-end // ALIGNED) * ALIGNED
        return tuple(parts)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the buffer."""
        return max([HEAD, *(end for _, end in self._parts)])

    def views(self, buffer: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors that lie in a buffer (uint8, of :attr:`nbytes`), not copied."""
        rows = zip(self._parts, self.shapes, self.dtypes, strict=True)
        return tuple(buffer[start:end].view(dtype).view(shape) for (start, end), shape, dtype in rows)

    def write(self, message: Message, buffer: torch.Tensor) -> None:
        """Copies the tensors of a message into a buffer."""
        for view, tensor in zip(self.views(buffer), message.tensors, strict=True):
            view.copy_(tensor)

    def __str__(self) -> str:
        return ", ".join(f"{dtype} {shape}" for dtype, shape in zip(self.dtypes, self.shapes, strict=True)) or "nothing"


@lru_cache(1024)
def _layout(*parts: Any) -> Layout:
    """The same one for the same messages, which come again with every microbatch."""
    return Layout(*parts)
