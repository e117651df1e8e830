"""Memory that two processes share, in slots, for the messages that go one way between them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

import torch

from ..runtime.layout import Layout
from .buffers import capacity
from .parts import Part, read_parts, write_parts

__all__ = ["LAYOUTS", "SLOTS", "Ring", "shared_file"]

SLOTS = 4
"""Messages that may lie in a ring before the first of them is taken out."""

LAYOUTS = 64
"""Different messages that are remembered at a time; a model whose shapes change with every batch has no end of them."""


class Ring:
    """Slots, in a file of :func:`shared_file`.

    Which slots are filled is not told here but by the records of a line.
    """

    def __init__(self, file: int) -> None:
        self._memory = memoryview(mmap.mmap(file, os.fstat(file).st_size))
        self.nbytes = len(self._memory) // SLOTS
        self._slots: tuple[torch.Tensor, ...] = torch.frombuffer(self._memory, dtype=torch.uint8).split(self.nbytes)
        self._views: list[dict[Layout, tuple[torch.Tensor, ...]]] = [{} for _ in self._slots]

    def views(self, slot: int, layout: Layout) -> tuple[torch.Tensor, ...]:
        """The tensors of a message in a slot. They are made once for every slot."""
        known = self._views[slot]
        if layout not in known:
            if len(known) == LAYOUTS:
                known.clear()
            known[layout] = layout.views(self._slots[slot])
        return known[layout]

    def write(self, slot: int, parts: Sequence[Part]) -> None:
        """Fills a slot with the parts of a value."""
        write_parts(self._bytes(slot), parts)

    def read(self, slot: int) -> list[bytearray]:
        """Copies of the parts in a slot."""
        return read_parts(self._bytes(slot))

    def _bytes(self, slot: int) -> memoryview:
        return self._memory[slot * self.nbytes : (slot + 1) * self.nbytes]


def shared_file(nbytes: int) -> int:
    """A file for messages of at most so many bytes. It has no name: it is gone with the last process that has it."""
    file = os.memfd_create("piper-dsl", os.MFD_CLOEXEC)
    # Every slot begins on a page of its own.
    os.ftruncate(file, SLOTS * capacity(max(nbytes, mmap.PAGESIZE)))
    return file
