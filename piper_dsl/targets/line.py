"""A line between two processes of one machine: messages through shared memory, and a socket that says what lies there.

A sender has as many credits as a ring has slots, so few records are ever under way and to say one never blocks.
Credits come back with whatever is said the other way, or, where nothing is, two at a time: each record wakes the
other end. Slots are filled in turn, from the first again whenever all are empty, so that memory which was never needed
is never touched. What a record tells of was written before it was said, and is read after it was heard.
"""

from __future__ import annotations

import errno
import os
import pickle
import socket
import struct
from collections import deque
from collections.abc import Sequence
from enum import IntEnum

from ..runtime.layout import Layout
from ..runtime.message import Message
from .parts import Part, nbytes_of
from .ring import LAYOUTS, SLOTS, Ring, shared_file

__all__ = ["DRIVER", "Arrival", "Line"]

DRIVER = -1
"""The driver's number, where it has lines to the ranks."""

_RECORD = struct.Struct("=9qd")
"""What it is, credits that come back; a message's tag, slot, step, source, target, microbatch and layout; a number."""

_OWED = SLOTS // 2
"""Credits that are not kept until there is something else to say. So a sender with none has some on their way."""

_FILE = socket.CMSG_SPACE(struct.calcsize("i"))
"""Room for one file that comes with a record."""

Arrival = tuple[int, Message | list[bytearray] | None]
"""The step, and a message, none where a failure left it uncomputed; or the parts of a value, which has no step."""


class _Said(IntEnum):
    MESSAGE = 0
    """A slot holds a message, of a layout that was told before."""
    NOTHING = 1
    """A slot stays empty: a failure left its message uncomputed."""
    TAKEN = 2
    """Nothing but that slots are empty again."""
    LAYOUT = 3
    """A layout, in the file that comes along, has this number from here on."""
    RING = 4
    """From here on messages lie in the ring that comes along."""
    NUMBER = 5
    PARTS = 6
    """A slot holds a value in parts."""


class Line:
    """One end of the line to ``peer``, a rank or DRIVER. :meth:`hear` fills ``arrived``, by tag, and ``numbers``."""

    def __init__(self, peer: int, connection: socket.socket) -> None:
        self.arrived: dict[int, Arrival] = {}
        self.numbers: deque[float] = deque()
        self.credits = SLOTS
        self._peer = peer
        self._socket = connection
        self._last = -1
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
        slot = self._slot()
        if message is None:
            self._put(slot, _Said.NOTHING, tag, step)
            return
        layout = Layout.of(message)
        number = self._number(layout)
        for view, tensor in zip(self._room(layout.nbytes).views(slot, layout), message.tensors, strict=True):
            view.copy_(tensor.detach())
        self._put(slot, _Said.MESSAGE, tag, step, message.source, message.target, message.microbatch, number)

    def give(self, tag: int, parts: Sequence[Part]) -> None:
        """Sends a value in parts. Costs a credit, of which there must be one."""
        slot = self._slot()
        self._room(nbytes_of(parts)).write(slot, parts)
        self._put(slot, _Said.PARTS, tag)

    def _slot(self) -> int:
        """The slot to fill next."""
        if self.credits == SLOTS:
            self._last = -1
        return (self._last + 1) % SLOTS

    def _put(self, slot: int, said: _Said, tag: int, *about: int) -> None:
        """Tells of a slot, which is filled from here on: whatever could go wrong with it did not."""
        self._last = slot
        self.credits -= 1
        self._say(said, tag, slot, *about)

    def _number(self, layout: Layout) -> int:
        """By which the other end knows a layout; it is told the first time."""
        if layout not in self._told:
            if len(self._told) == LAYOUTS:
                self._told.clear()
            number = len(self._told)
            with open(os.memfd_create("piper-dsl", os.MFD_CLOEXEC), "wb") as file:
                pickle.dump(layout, file)
                file.flush()
                self._say(_Said.LAYOUT, number=number, file=file.fileno())
            self._told[layout] = number
        return self._told[layout]

    def _room(self, nbytes: int) -> Ring:
        """The ring for a message: a larger one, for both ends, where it does not fit into the one before."""
        if self._outgoing is None or nbytes > self._outgoing.nbytes:
            with open(shared_file(nbytes), "r+b") as file:
                ring = Ring(file.fileno())
                self._say(_Said.RING, file=file.fileno())
            self._outgoing = ring
        return self._outgoing

    def tell(self, number: float) -> None:
        """Sends a number."""
        self._say(_Said.NUMBER, value=number)

    def hear(self) -> None:
        """Waits for one record.

        Raises ConnectionError where the other end is gone, RuntimeError for a tag that has not been taken yet, and
        OSError where memory cannot be shared.
        """
        try:
            data, extra, _, _ = self._socket.recvmsg(_RECORD.size, _FILE, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise self._gone() from error
        if not data:
            raise self._gone()
        said, credits, tag, slot, step, source, target, microbatch, number, value = _RECORD.unpack(data)
        self.credits += credits
        if said == _Said.MESSAGE:
            self._take_out(tag, step, self._message(slot, step, source, target, microbatch, self._heard[number]))
        elif said == _Said.NOTHING:
            self._take_out(tag, step, None)
        elif said == _Said.PARTS:
            assert self._incoming is not None
            self._take_out(tag, step, self._incoming.read(slot))
        elif said == _Said.NUMBER:
            self.numbers.append(value)
        elif said == _Said.LAYOUT:
            with open(_file(extra), "rb") as along:
                along.seek(0)
                self._heard[number] = pickle.load(along)
        elif said == _Said.RING:
            with open(_file(extra), "r+b") as along:
                self._incoming = Ring(along.fileno())

    def _message(self, slot: int, step: int, source: int, target: int, microbatch: int, layout: Layout) -> Message:
        """The message in a slot, copied: messages are held longer than slots should be."""
        assert self._incoming is not None
        tensors = tuple(view.clone() for view in self._incoming.views(slot, layout))
        return Message(step, source, target, microbatch, tensors, layout.needs_grad)

    def _take_out(self, tag: int, step: int, found: Message | list[bytearray] | None) -> None:
        """What was in a slot, which can be filled again."""
        if tag in self.arrived:
            raise RuntimeError(f"message {tag} arrived once more before it was taken")
        self._owed += 1
        self.arrived[tag] = step, found
        if self._owed >= _OWED:
            self._say(_Said.TAKEN)

    def release(self) -> None:
        """Lets go of the memory, whoever still knows the line: an error remembers all who were called."""
        self._outgoing = self._incoming = None

    def _say(
        self,
        said: _Said,
        tag: int = 0,
        slot: int = 0,
        step: int = 0,
        source: int = 0,
        target: int = 0,
        microbatch: int = 0,
        number: int = 0,
        value: float = 0.0,
        file: int | None = None,
    ) -> None:
        record = _RECORD.pack(said, self._owed, tag, slot, step, source, target, microbatch, number, value)
        self._owed = 0
        try:
            if file is None:
                self._socket.send(record)
            else:
                socket.send_fds(self._socket, [record], [file])
        except ConnectionError as error:
            raise self._gone() from error

    def _gone(self) -> ConnectionError:
        name = "the driver" if self._peer == DRIVER else f"rank {self._peer}"
        return ConnectionError(f"{name} closed its connection")


def _file(extra: list[tuple[int, int, bytes]]) -> int:
    """The file that came with a record. Raises OSError where this process may not open any more."""
    if not extra:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    number: int = struct.unpack("i", extra[0][2])[0]
    return number
