"""Values as bytes, with what is large of them apart, so that it is not copied once more; and how they lie in memory.

Ray pickles what it is given with many hooks of its own; bytes it takes as they are, in a third of the time.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from ray import cloudpickle

__all__ = ["Part", "from_parts", "nbytes_of", "read_parts", "to_parts", "write_parts"]

Part = Any
"""Bytes, or what shows itself as bytes: a flat array of them (uint8)."""

LARGE = 1 << 16
"""Bytes of what is worth a part of its own."""

_ALIGNED = 64
"""Every part begins at a multiple of this."""

_WORD = 8
"""Bytes of a number."""


def to_parts(value: Any) -> list[Part]:
    """The value, pickled; classes and functions that cannot be imported elsewhere come along with it."""
    large: list[np.ndarray] = []

    def in_band(buffer: pickle.PickleBuffer) -> bool:
        part = np.frombuffer(buffer.raw(), dtype=np.uint8)
        if len(part) < LARGE:
            return True
        large.append(part)
        return False

    return [cloudpickle.dumps(value, 5, buffer_callback=in_band), *large]


def from_parts(parts: Sequence[Part]) -> Any:
    """The value. Its arrays lie in the parts, and can be written to if these can."""
    return pickle.loads(parts[0], buffers=parts[1:])


def nbytes_of(parts: Sequence[Part]) -> int:
    """The bytes that :func:`write_parts` writes, at most."""
    return _begin(len(parts)) + sum(_aligned(len(part)) for part in parts)


def write_parts(memory: memoryview, parts: Sequence[Part]) -> None:
    """Writes how many parts there are, their sizes, and them."""
    start = _begin(len(parts))
    memory[:start].cast("q")[: 1 + len(parts)] = array("q", [len(parts), *map(len, parts)])
    for part in parts:
        memory[start : start + len(part)] = part
        start += _aligned(len(part))


def read_parts(memory: memoryview) -> list[bytearray]:
    """Copies of what was written."""
    count = memory[:_WORD].cast("q")[0]
    start, parts = _begin(count), []
    for size in memory[_WORD : _WORD * (1 + count)].cast("q"):
        parts.append(bytearray(memory[start : start + size]))
        start += _aligned(size)
    return parts


def _begin(count: int) -> int:
    """Where the first of so many parts begins."""
    return _aligned(_WORD * (1 + count))


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNED) * _ALIGNED
