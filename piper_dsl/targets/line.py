"""A line between two ranks of one machine: messages through shared memory, and a socket that says what lies there.

A sender has as many credits as a ring has slots, so few records are ever under way and to say one never blocks.
Credits come back with whatever is said the other way, or, where nothing is, two at a time: each record wakes the
other rank. What a record tells of was written before it was said, and is read after it was heard.
"""

from __future__ import annotations

import os
import socket
import struct
from collections import deque
from enum import IntEnum

import torch

from .buffers import Buffers
from .ring import SLOTS, Ring, shared_file

__all__ = ["Line"]

_RECORD = struct.Struct("=4qd")
"""What it is, a message's tag, a size in bytes, credits that come back, and a number."""

_OWED = SLOTS // 2
"""Credits that are not kept until there is something else to say. So a sender with none has some on their way."""

_FILE = socket.CMSG_SPACE(struct.calcsize("i"))
"""Room for one file that comes with a record."""


class _Said(IntEnum):
    MESSAGE = 0
    """The next slot holds a message."""
    TAKEN = 1
    """Nothing but that slots are empty again."""
    RING = 2
    """From here on messages lie in the ring that comes along."""
    NUMBER = 3


class Line:
    """One end of the line to rank ``peer``. :meth:`hear` fills ``arrived``, by tag, and ``numbers``."""

    def __init__(self, peer: int, connection: socket.socket, buffers: Buffers) -> None:
        self.arrived: dict[int, torch.Tensor] = {}
        self.numbers: deque[float] = deque()
        self.credits = SLOTS
        self._peer = peer
        self._socket = connection
        self._buffers = buffers
        self._sent = 0
        self._taken = 0
        self._owed = 0
        self._outgoing: Ring | None = None
        self._incoming: Ring | None = None

    def fileno(self) -> int:
        """The socket's, to be waited for."""
        return self._socket.fileno()

    def room(self, nbytes: int) -> tuple[Ring, int]:
        """The ring for the next message, and whose turn it is there. Costs a credit, of which there must be one."""
        if self._outgoing is None or nbytes > self._outgoing.nbytes:
            self._outgoing = self._enlarged(nbytes)
        self.credits -= 1
        self._sent += 1
        return self._outgoing, self._sent - 1

    def _enlarged(self, nbytes: int) -> Ring:
        """A ring that the other end uses too, as soon as it has emptied the one before."""
        file = shared_file(nbytes)
        try:
            ring = Ring(file, nbytes)
            self._say(_Said.RING, nbytes=nbytes, file=file)
        finally:
            os.close(file)
        return ring

    def publish(self, tag: int, nbytes: int) -> None:
        """The message for which there was room lies there."""
        self._say(_Said.MESSAGE, tag, nbytes)

    def tell(self, number: float) -> None:
        """Sends a number."""
        self._say(_Said.NUMBER, number=number)

    def hear(self) -> None:
        """Waits for one record. Raises ConnectionError where the other rank is gone."""
        try:
            data, extra, _, _ = self._socket.recvmsg(_RECORD.size, _FILE, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError as error:
            raise self._gone() from error
        if not data:
            raise self._gone()
        said, tag, nbytes, credits, number = _RECORD.unpack(data)
        self.credits += credits
        if said == _Said.MESSAGE:
            self._take_out(tag, nbytes)
        elif said == _Said.RING:
            self._incoming = _mapped(extra[0][2], nbytes)
        elif said == _Said.NUMBER:
            self.numbers.append(number)

    def _take_out(self, tag: int, nbytes: int) -> None:
        """Copies a message, so that its slot can be filled again: messages are held longer than slots should be."""
        assert self._incoming is not None
        buffer = self._buffers.take(nbytes)
        buffer.copy_(self._incoming.slot(self._taken, nbytes))
        self._taken += 1
        self._owed += 1
        self.arrived[tag] = buffer
        if self._owed >= _OWED:
            self._say(_Said.TAKEN)

    def _say(self, said: _Said, tag: int = 0, nbytes: int = 0, number: float = 0.0, file: int | None = None) -> None:
        record = _RECORD.pack(said, tag, nbytes, self._owed, number)
        self._owed = 0
        try:
            if file is None:
                self._socket.send(record)
            else:
                socket.send_fds(self._socket, [record], [file])
        except ConnectionError as error:
            raise self._gone() from error

    def _gone(self) -> ConnectionError:
        return ConnectionError(f"rank {self._peer} closed its connection")


def _mapped(data: bytes, nbytes: int) -> Ring:
    """The ring whose file came with a record."""
    (file,) = struct.unpack("i", data)
    try:
        return Ring(file, nbytes)
    finally:
        os.close(file)
