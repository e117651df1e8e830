"""Blocks of shared memory, each for one message at a time."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

__all__ = ["Block", "block_size", "mapped"]

_ALIGNED = 64
_SMALLEST = 4096


class Block:
    """Shared memory for a message: a word that is set until it has been read, how many parts, their sizes, and they."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._words = memory.cast("q")

    @property
    def free(self) -> bool:
        return not self._words[0]

    def release(self) -> None:
        """The message has been read."""
        self._words[0] = 0

    def close(self) -> None:
        """Lets go of the memory, which stays mapped as long as anybody looks at it."""
        self._words.release()
        self._memory.release()

    def write(self, parts: Sequence[memoryview]) -> None:
        """Copies a message in."""
        self._words[0], self._words[1] = 1, len(parts)
        start = _table(len(parts))
        for number, part in enumerate(parts):
            self._words[2 + number] = part.nbytes
            self._memory[start : start + part.nbytes] = part
            start += _aligned(part.nbytes)

    def read(self) -> list[bytearray]:
        """Copies of the parts."""
        start, found = _table(self._words[1]), []
        for size in self._words[2 : 2 + self._words[1]]:
            found.append(bytearray(self._memory[start : start + size]))
            start += _aligned(size)
        return found


def block_size(parts: Sequence[memoryview]) -> int:
    """The bytes of a block for a message: a power of two, so that few sizes serve all."""
    size = _table(len(parts)) + sum(_aligned(part.nbytes) for part in parts)
    return max(_SMALLEST, 1 << (size - 1).bit_length())


def mapped(file: int) -> memoryview:
    """All of a file as memory."""
    return memoryview(mmap.mmap(file, os.fstat(file).st_size))


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNED) * _ALIGNED


def _table(parts: int) -> int:
    """Bytes before the first part."""
    return _aligned(8 * (2 + parts))
