"""A line between two ranks of one machine: messages through shared memory, and a socket that says what lies there.

A sender has as many credits as a ring has slots, so few records are ever under way and to say one never blocks.
Credits come back with whatever is said the other way, or, where nothing is, two at a time: each record wakes the
other rank. What a record tells of was written before it was said, and is read after it was heard.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
from collections import deque
from enum import IntEnum

import torch

from ..runtime.layout import Layout
from ..runtime.message import Message
from .ring import LAYOUTS, SLOTS, Ring, shared_file

__all__ = ["Arrival", "Line"]

_RECORD = struct.Struct("=5qd")
"""What it is, a message's tag and step, the number of a layout, credits that come back, and a number."""

_OWED = SLOTS // 2
"""Credits that are not kept until there is something else to say. So a sender with none has some on their way."""

_FILE = socket.CMSG_SPACE(struct.calcsize("i"))
"""Room for one file that comes with a record."""

Arrival = tuple[int, Layout | None, tuple[torch.Tensor, ...]]
"""The step of a message, its layout and tensors; no layout where a failure left it uncomputed."""


class _Said(IntEnum):
    MESSAGE = 0
    """The next slot holds a message, of a layout that was told before."""
    NOTHING = 1
    """The next slot stays empty: a failure left its message uncomputed."""
    TAKEN = 2
    """Nothing but that slots are empty again."""
    LAYOUT = 3
    """A layout, in the file that comes along, has this number from here on."""
    RING = 4
    """From here on messages lie in the ring that comes along."""
    NUMBER = 5


class Line:
    """One end of the line to rank ``peer``. :meth:`hear` fills ``arrived``, by tag, and ``numbers``."""

    def __init__(self, peer: int, connection: socket.socket) -> None:
        self.arrived: dict[int, Arrival] = {}
        self.numbers: deque[float] = deque()
        self.credits = SLOTS
        self._peer = peer
        self._socket = connection
        self._sent = 0
        self._taken = 0
        self._owed = 0
        self._outgoing: Ring | None = None
        self._incoming: Ring | None = None
        self._told: dict[Layout, int] = {}
        self._heard: dict[int, Layout] = {}

    def fileno(self) -> int:
        """The socket's, to be waited for."""
        return self._socket.fileno()

    def send(self, tag: int, step: int, message: Message | None) -> None:
        """Sends a message, or that there is none. Costs a credit, of which there must be one.

        Raises ValueError for a message that cannot be sent; nothing is, then.
        """
        layout = None if message is None else Layout.of(message)
        self.credits -= 1
        turn, self._sent = self._sent, self._sent + 1
        if message is None or layout is None:
            self._say(_Said.NOTHING, tag, step)
            return
        number = self._number(layout)
        for view, tensor in zip(self._room(layout.nbytes).views(turn, layout), message.tensors, strict=True):
            view.copy_(tensor)
        self._say(_Said.MESSAGE, tag, step, number)

    def _number(self, layout: Layout) -> int:
        """By which the other end knows a layout; it is told the first time."""
        if layout not in self._told:
            if len(self._told) == LAYOUTS:
                self._told.clear()
            self._told[layout] = len(self._told)
            with open(os.memfd_create("piper-dsl", os.MFD_CLOEXEC), "wb") as file:
                pickle.dump(layout, file)
                file.flush()
                self._say(_Said.LAYOUT, number=self._told[layout], file=file.fileno())
        return self._told[layout]

    def _room(self, nbytes: int) -> Ring:
        """The ring for a message: a larger one, for both ends, where it does not fit into the one before."""
        if self._outgoing is None or nbytes > self._outgoing.nbytes:
            with open(shared_file(nbytes), "r+b") as file:
                self._outgoing = Ring(file.fileno())
                self._say(_Said.RING, file=file.fileno())
        return self._outgoing

    def tell(self, number: float) -> None:
        """Sends a number."""
        self._say(_Said.NUMBER, value=number)

    def hear(self) -> None:
        """Waits for one record. Raises ConnectionError where the other rank is gone."""
        try:
            data, extra, _, _ = self._socket.recvmsg(_RECORD.size, _FILE, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError as error:
            raise self._gone() from error
        if not data:
            raise self._gone()
        said, tag, step, number, credits, value = _RECORD.unpack(data)
        self.credits += credits
        if said == _Said.MESSAGE:
            self._take_out(tag, step, self._heard[number])
        elif said == _Said.NOTHING:
            self._take_out(tag, step, None)
        elif said == _Said.NUMBER:
            self.numbers.append(value)
        elif said == _Said.LAYOUT:
            with open(_file(extra), "rb") as along:
                along.seek(0)
                self._heard[number] = pickle.load(along)
        elif said == _Said.RING:
            with open(_file(extra), "r+b") as along:
                self._incoming = Ring(along.fileno())

    def _take_out(self, tag: int, step: int, layout: Layout | None) -> None:
        """Copies a message, so that its slot can be filled again: messages are held longer than slots should be."""
        tensors: tuple[torch.Tensor, ...] = ()
        if layout is not None:
            assert self._incoming is not None
            tensors = tuple(view.clone() for view in self._incoming.views(self._taken, layout))
        self._taken += 1
        self._owed += 1
        self.arrived[tag] = step, layout, tensors
        if self._owed >= _OWED:
            self._say(_Said.TAKEN)

    def _say(
        self, said: _Said, tag: int = 0, step: int = 0, number: int = 0, value: float = 0.0, file: int | None = None
    ) -> None:
        record = _RECORD.pack(said, tag, step, number, self._owed, value)
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


def _file(extra: list[tuple[int, int, bytes]]) -> int:
    """The file that came with a record."""
    number: int = struct.unpack("i", extra[0][2])[0]
    return number
