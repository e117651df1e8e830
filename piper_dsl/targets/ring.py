"""Memory that two processes share, in slots, for the messages that go one way between them."""

from __future__ import annotations

import mmap
import os

import torch

from ..runtime.layout import Layout

__all__ = ["SLOTS", "Ring", "shared_file"]

SLOTS = 4
"""Messages that may lie in a ring before the first of them is taken out."""

_PAGE = 4096
"""Every slot begins on a page of its own."""


class Ring:
    """Slots that are filled and emptied in turn, in a file of :func:`shared_file`.

    Which slots are filled is not told here but by the records of a line.
    """

    def __init__(self, file: int, nbytes: int) -> None:
        size = _slot_size(nbytes)
        memory = torch.frombuffer(mmap.mmap(file, SLOTS * size), dtype=torch.uint8)
        self.nbytes = nbytes
        self._slots: tuple[torch.Tensor, ...] = memory.split(size)
        self._views: list[dict[Layout, tuple[torch.Tensor, ...]]] = [{} for _ in self._slots]

    def slot(self, turn: int, nbytes: int) -> torch.Tensor:
        """Where the message lies whose ``turn`` it is, counted from 0."""
        return self._slots[turn % SLOTS][:nbytes]

    def views(self, turn: int, layout: Layout) -> tuple[torch.Tensor, ...]:
        """The tensors of that message. They are made once for every slot."""
        known = self._views[turn % SLOTS]
        if layout not in known:
            known[layout] = layout.views(self.slot(turn, layout.nbytes))
        return known[layout]


def shared_file(nbytes: int) -> int:
    """A file for messages of at most so many bytes. It has no name: it is gone with the last process that has it."""
    file = os.memfd_create("piper-dsl", os.MFD_CLOEXEC)
    os.ftruncate(file, SLOTS * _slot_size(nbytes))
    return file


def _slot_size(nbytes: int) -> int:
    return max(1, -(-nbytes // _PAGE)) * _PAGE
