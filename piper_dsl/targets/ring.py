"""Memory that two processes share, in slots, for the messages that go one way between them."""

from __future__ import annotations

import mmap
import os

import torch

from ..runtime.layout import Layout
from .buffers import capacity

__all__ = ["LAYOUTS", "SLOTS", "Ring", "shared_file"]

SLOTS = 4
"""Messages that may lie in a ring before the first of them is taken out."""

LAYOUTS = 64
"""Different messages that are remembered at a time; a model whose shapes change with every batch has no end of them."""


class Ring:
    """Slots that are filled and emptied in turn, in a file of :func:`shared_file`.

    Which slots are filled is not told here but by the records of a line.
    """

    def __init__(self, file: int) -> None:
        memory = torch.frombuffer(mmap.mmap(file, os.fstat(file).st_size), dtype=torch.uint8)
        self.nbytes = len(memory) // SLOTS
        self._slots: tuple[torch.Tensor, ...] = memory.split(self.nbytes)
        self._views: list[dict[Layout, tuple[torch.Tensor, ...]]] = [{} for _ in self._slots]

    def views(self, turn: int, layout: Layout) -> tuple[torch.Tensor, ...]:
        """The tensors of the message whose ``turn`` it is, counted from 0. They are made once for every slot."""
        known = self._views[turn % SLOTS]
        if layout not in known:
            if len(known) == LAYOUTS:
                known.clear()
            known[layout] = layout.views(self._slots[turn % SLOTS])
        return known[layout]


def shared_file(nbytes: int) -> int:
    """A file for messages of at most so many bytes. It has no name: it is gone with the last process that has it."""
    file = os.memfd_create("piper-dsl", os.MFD_CLOEXEC)
    # Every slot begins on a page of its own.
    os.ftruncate(file, SLOTS * capacity(max(nbytes, mmap.PAGESIZE)))
    return file
