"""Messages that reach a rank: posted ahead, in the order of the program, and waited for when they are needed."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import torch

from ..runtime.layout import Layout
from .actions import Transfer
from .buffers import Buffers
from .groups import Groups
from .head import HEAD

__all__ = ["Incoming"]


class Incoming:
    """What one rank receives from one other in a step; ``order`` is the order of the program's RECVs."""

    def __init__(self, groups: Groups, buffers: Buffers, order: Sequence[Transfer], layouts: dict[int, Layout]) -> None:
        self._groups = groups
        self._buffers = buffers
        self._order = order
        self._layouts = layouts
        self._place = {transfer.tag: place for place, transfer in enumerate(order)}
        self._posted = 0
        self._taken = 0
        self._works: dict[int, tuple[Any, torch.Tensor]] = {}

    def post(self, transfer: Transfer | None = None) -> None:
        """Lets a message arrive, with all before it, and some ahead of what was taken."""
        through = self._taken + self._groups.ahead if transfer is None else self._place[transfer.tag] + 1
        for one in self._order[self._posted : through]:
            buffer = self._buffers.take(HEAD + self._layouts[one.tag].nbytes)
            self._works[one.tag] = self._groups.receive(buffer, one.peer, 2 * one.tag), buffer
        self._posted = max(self._posted, min(through, len(self._order)))

    def take(self, transfer: Transfer) -> torch.Tensor:
        """Waits for a message."""
        self.post(transfer)
        work, buffer = self._works.pop(transfer.tag)
        work.wait()
        self._taken += 1
        self.post()
        return buffer

    def learn(self, transfer: Transfer) -> torch.Tensor | None:
        """Waits for a message whose layout comes before it. None where the sender had failed: then nothing follows."""
        tag, device = 2 * transfer.tag + 1, self._groups.device
        length = torch.zeros(1, dtype=torch.int64, device=device)
        self._groups.receive(length, transfer.peer, tag).wait()
        words = torch.empty(int(length.item()), dtype=torch.uint8, device=device)
        self._groups.receive(words, transfer.peer, tag).wait()
        layout = pickle.loads(bytes(words.cpu().numpy()))
        if layout is None:
            return None
        self._layouts[transfer.tag] = layout
        buffer = self._buffers.take(HEAD + layout.nbytes)
        self._groups.receive(buffer, transfer.peer, 2 * transfer.tag).wait()
        return buffer
