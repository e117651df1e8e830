"""The links of a rank where all ranks are on one machine. While it waits for one, it hears what all of them say.

So slots are emptied whatever a rank waits for, and no two ranks can wait for each other.
"""

from __future__ import annotations

import select
from collections.abc import Hashable, Iterable, Mapping
from socket import socket

from ..runtime.message import Message
from .actions import Transfer
from .line import Line

__all__ = ["Neighbours"]


class Neighbours:
    """The lines of one rank, over open ``connections`` to other ranks. These are its ``Links``."""

    def __init__(self, rank: int, connections: Mapping[int, socket]) -> None:
        self._rank = rank
        self._step = -1
        self._lines = {peer: Line(peer, connection) for peer, connection in connections.items()}
        self._by_file = {line.fileno(): line for line in self._lines.values()}
        self._poll = select.poll()
        for file in self._by_file:
            self._poll.register(file, select.POLLIN)

    def _hear(self) -> None:
        """Waits until somebody says something, and hears all who do."""
        for file, _ in self._poll.poll():
            self._by_file[file].hear()

    # --- messages ----------------------------------------------------------------------------

    def begin(self, step: int, signature: Hashable, receives: Iterable[Transfer]) -> None:
        """Starts a step. Messages say themselves what they are, so nothing is to be learnt of its data."""
        self._step = step

    def send(self, transfer: Transfer, message: Message | None) -> None:
        """Sends a message, once there is a slot for it."""
        line = self._lines[transfer.peer]
        while not line.credits:
            self._hear()
        line.send(transfer.tag, self._step, message)

    def post(self, transfer: Transfer) -> None:
        """Messages come by themselves."""

    def receive(self, transfer: Transfer) -> Message | None:
        """Waits for a message."""
        arrived = self._lines[transfer.peer].arrived
        while transfer.tag not in arrived:
            self._hear()
        step, layout, tensors = arrived.pop(transfer.tag)
        if step != self._step:
            raise ValueError(f"message {transfer.tag} of step {self._step} was due, but that of step {step} arrived")
        if layout is None:
            return None
        return Message(step, transfer.source, transfer.target, transfer.microbatch, tensors, layout.needs_grad)

    def end(self, good: bool) -> None:
        """All that was sent has been taken out."""

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
