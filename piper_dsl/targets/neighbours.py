"""The ranks of this machine, and the lines to them. While a rank waits for one, it hears what all of them say.

So slots are emptied whatever a rank waits for, and no two ranks can wait for each other.
"""

from __future__ import annotations

import pickle
import select
from collections.abc import Mapping
from socket import socket

import torch

from ..runtime.layout import Head, Layout
from ..runtime.message import Message
from .actions import Transfer
from .buffers import Buffers
from .line import Line

__all__ = ["Neighbours"]


class Neighbours:
    """The lines of one rank, over open ``connections`` to other ranks."""

    def __init__(self, rank: int, connections: Mapping[int, socket]) -> None:
        self._rank = rank
        self._buffers = Buffers("cpu")
        self._lines = {peer: Line(peer, connection, self._buffers) for peer, connection in connections.items()}
        self._by_file = {line.fileno(): line for line in self._lines.values()}
        self._poll = select.poll()
        for file in self._by_file:
            self._poll.register(file, select.POLLIN)

    def __contains__(self, rank: int) -> bool:
        return rank in self._lines

    def _hear(self) -> None:
        """Waits until somebody says something, and hears all who do."""
        for file, _ in self._poll.poll():
            self._by_file[file].hear()

    # --- messages ----------------------------------------------------------------------------

    def introduce(self, transfer: Transfer, layout: Layout | None) -> None:
        """Sends the layout of a message, or that there is none, before the message itself."""
        words = torch.frombuffer(bytearray(pickle.dumps(layout)), dtype=torch.uint8)
        line = self._ready(transfer.peer)
        ring, turn = line.room(len(words))
        ring.slot(turn, len(words)).copy_(words)
        line.publish(2 * transfer.tag + 1, len(words))

    def send(self, transfer: Transfer, layout: Layout, message: Message | None, step: int) -> None:
        """Sends a message, or a head that says there is none."""
        line = self._ready(transfer.peer)
        ring, turn = line.room(layout.nbytes)
        Head(step, transfer.tag, message is not None).write(ring.slot(turn, layout.nbytes))
        if message is not None:
            for view, tensor in zip(ring.views(turn, layout), message.tensors, strict=True):
                view.copy_(tensor)
        line.publish(2 * transfer.tag, layout.nbytes)

    def _ready(self, peer: int) -> Line:
        """The line to a rank, once there is a slot to fill."""
        line = self._lines[peer]
        while not line.credits:
            self._hear()
        return line

    def take(self, transfer: Transfer) -> torch.Tensor:
        """Waits for a message."""
        return self._arrived(transfer.peer, 2 * transfer.tag)

    def learn(self, transfer: Transfer) -> Layout | None:
        """Waits for the layout of a message; None where the sender had failed: then no message follows."""
        words = self._arrived(transfer.peer, 2 * transfer.tag + 1)
        layout: Layout | None = pickle.loads(bytes(words.numpy()))
        return layout

    def _arrived(self, peer: int, tag: int) -> torch.Tensor:
        arrived = self._lines[peer].arrived
        while tag not in arrived:
            self._hear()
        return arrived.pop(tag)

    def forget(self) -> None:
        """Drops buffers: other sizes are coming."""
        self._buffers.clear()

    # --- what all ranks agree about ----------------------------------------------------------

    def total(self, number: float) -> float:
        """The sum of a number over all ranks; rank 0 has a line to each, adds them up and tells the others."""
        if self._rank:
            self._lines[0].tell(number)
            return self._number(0)
        found = sum((self._number(peer) for peer in sorted(self._lines)), start=number)
        for line in self._lines.values():
            line.tell(found)
        return found

    def _number(self, peer: int) -> float:
        numbers = self._lines[peer].numbers
        while not numbers:
            self._hear()
        return numbers.popleft()
