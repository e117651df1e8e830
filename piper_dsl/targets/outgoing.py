"""Messages that leave a rank: packed, sent, and not waited for before their buffer is needed."""

from __future__ import annotations

import pickle
from collections import deque
from typing import Any

import torch

from ..runtime.layout import Layout
from ..runtime.message import Message
from .actions import Transfer
from .buffers import Buffers
from .groups import Groups
from .head import HEAD, Head

__all__ = ["Outgoing"]

IN_FLIGHT = 4
"""Messages to a rank that may be under way where sends are bounded; the next waits for the first of them."""


class Outgoing:
    """What one rank sends; a buffer is held until its message has left.

    ``bounded``: a send may wait for its receive to be posted, so few buffers suffice.
    """

    def __init__(self, groups: Groups, buffers: Buffers, bounded: bool) -> None:
        self._groups = groups
        self._buffers = buffers
        self._bounded = bounded
        self._flying: dict[int, deque[tuple[Any, torch.Tensor]]] = {}

    def introduce(self, transfer: Transfer, layout: Layout | None) -> None:
        """Sends the layout of a message, or that there is none, before the message itself."""
        words = torch.frombuffer(bytearray(pickle.dumps(layout)), dtype=torch.uint8).to(self._groups.device)
        self._start(transfer, torch.tensor([len(words)], device=self._groups.device), 2 * transfer.tag + 1)
        self._start(transfer, words, 2 * transfer.tag + 1)

    def send(self, transfer: Transfer, layout: Layout, message: Message | None, step: int, waits: bool) -> None:
        """Packs and sends a message, or a head that says there is none. Waits only where it ``waits`` for buffers."""
        if self._bounded and waits:
            self._await(transfer.peer, IN_FLIGHT - 1)
        buffer = self._buffers.take(HEAD + layout.nbytes)
        Head(step, transfer.tag, message is not None).write(buffer)
        if message is not None:
            for view, tensor in zip(layout.views(buffer[HEAD:]), message.tensors, strict=True):
                view.copy_(tensor)
        self._start(transfer, buffer, 2 * transfer.tag)

    def _start(self, transfer: Transfer, buffer: torch.Tensor, tag: int) -> None:
        work = self._groups.send(buffer, transfer.peer, tag)
        self._flying.setdefault(transfer.peer, deque()).append((work, buffer))

    def _await(self, peer: int, left: int) -> None:
        """Waits until at most ``left`` messages to a rank are under way."""
        flying = self._flying.get(peer)
        while flying and len(flying) > left:
            work, _ = flying.popleft()
            work.wait()

    def finish(self) -> None:
        """Waits for all that is under way."""
        for peer in self._flying:
            self._await(peer, 0)
