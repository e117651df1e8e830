"""Messages that leave a rank: packed, sent, and not waited for before their buffer is needed."""

from __future__ import annotations

import pickle
from collections import deque
from typing import Any

import torch

from ..runtime.layout import Head, Layout
from ..runtime.message import Message
from .actions import Transfer
from .wire import Wire

__all__ = ["Outgoing"]

IN_FLIGHT = 4
"""Messages to a rank that may be under way where sends are bounded; the next waits for the first of them."""


class Outgoing:
    """What one rank sends. ``bounded``: a send may wait for its receive to be posted, so few buffers suffice."""

    def __init__(self, wire: Wire, bounded: bool) -> None:
        self._wire = wire
        self._bounded = bounded
        self._flying: dict[int, deque[tuple[Any, torch.Tensor]]] = {}
        self._idle: dict[int, list[torch.Tensor]] = {}

    def introduce(self, transfer: Transfer, layout: Layout | None) -> None:
        """Sends the layout of a message, or that there is none, before the message itself."""
        words = torch.frombuffer(bytearray(pickle.dumps(layout)), dtype=torch.uint8).to(self._wire.device)
        self._start(transfer, torch.tensor([len(words)], device=self._wire.device), 2 * transfer.tag + 1)
        self._start(transfer, words, 2 * transfer.tag + 1)

    def send(self, transfer: Transfer, layout: Layout, message: Message | None, step: int, waits: bool) -> None:
        """Packs and sends a message, or a head that says there is none. Waits only where it ``waits`` for buffers."""
        if self._bounded and waits:
            self._await(transfer.peer, IN_FLIGHT - 1)
        idle = self._idle.get(layout.nbytes)
        buffer = idle.pop() if idle else torch.zeros(layout.nbytes, dtype=torch.uint8, device=self._wire.device)
        Head(step, transfer.tag, message is not None).write(buffer)
        if message is not None:
            layout.write(message, buffer)
        self._start(transfer, buffer, 2 * transfer.tag)

    def _start(self, transfer: Transfer, buffer: torch.Tensor, tag: int) -> None:
        work = self._wire.send(buffer, transfer.peer, tag)
        self._flying.setdefault(transfer.peer, deque()).append((work, buffer))

    def _await(self, peer: int, left: int) -> None:
        """Waits until at most ``left`` messages to a rank are under way."""
        flying = self._flying.get(peer)
        while flying and len(flying) > left:
            work, buffer = flying.popleft()
            work.wait()
            self._idle.setdefault(buffer.nbytes, []).append(buffer)

    def finish(self) -> None:
        """Waits for all that is under way."""
        for peer in self._flying:
            self._await(peer, 0)

    def forget(self) -> None:
        """Drops the buffers: other sizes are coming."""
        self._idle.clear()
