"""How the tensors of a message lie in one flat buffer, so that it travels as one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch

from .message import Message

__all__ = ["Layout", "is_dense", "kind_of"]

ALIGNED = 16
"""Every tensor begins at a multiple of this."""


@dataclass(frozen=True)
class Layout:
    """Shapes and dtypes of the tensors of a message, and which of them need a gradient."""

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    needs_grad: tuple[bool, ...]

    @classmethod
    def of(cls, message: Message) -> Layout:
        """That of a message. Raises ValueError for tensors that are more than the values in their shape."""
        for tensor in message.tensors:
            if not is_dense(tensor):
                raise ValueError(
                    f"only dense tensors go between ranks; this one is {kind_of(tensor)}: convert it to a dense one"
                )
        shapes = tuple(tuple(x.shape) for x in message.tensors)
        return _layout(shapes, tuple(x.dtype for x in message.tensors), message.needs_grad)

    def __reduce__(self) -> tuple[Any, ...]:
        return _layout, (self.shapes, self.dtypes, self.needs_grad)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Computed once: layouts are looked up with every message."""
        return hash((self.shapes, self.dtypes, self.needs_grad))

    @cached_property
    def _parts(self) -> tuple[tuple[int, int], ...]:
        """Where every tensor begins and ends, in bytes."""
        parts, start = [], 0
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            end = start + math.prod(shape) * dtype.itemsize
            parts.append((start, end))
            start = -(-end // ALIGNED) * ALIGNED
        return tuple(parts)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the buffer."""
        return max((end for _, end in self._parts), default=0)

    def views(self, buffer: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors that lie in a buffer (uint8, of at least :attr:`nbytes`), not copied."""
        rows = zip(self._parts, self.shapes, self.dtypes, strict=True)
        return tuple(buffer[start:end].view(dtype).view(shape) for (start, end), shape, dtype in rows)

    def __str__(self) -> str:
        needs_grad = self.needs_grad or (False,) * len(self.shapes)
        rows = zip(self.dtypes, self.shapes, needs_grad, strict=True)
        said = (f"{dtype} {shape}{' that needs a gradient' if flag else ''}" for dtype, shape, flag in rows)
        return ", ".join(said) or "nothing"


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor is no more than the values in its shape."""
    return tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_nested)


def kind_of(tensor: torch.Tensor) -> str:
    """What a tensor is that is not dense, in a word."""
    kinds = {"quantized": tensor.is_quantized, "nested": tensor.is_nested}
    return next((kind for kind in kinds if kinds[kind]), str(tensor.layout).removeprefix("torch."))


@lru_cache(1024)
def _layout(*parts: Any) -> Layout:
    """The same one for the same messages, which come again with every microbatch."""
    return Layout(*parts)
