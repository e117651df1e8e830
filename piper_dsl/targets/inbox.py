"""Messages between processes of one machine: shared memory holds them, a pipe tells of them.

Every process that reads has an inbox. A writer copies a message into a block of memory of its own and writes a note of
some bytes into the inbox's pipe; the reader sleeps in the kernel until there is one, maps the block, and copies the
message out. So who waits uses no time, no writer ever waits for a reader, and memory is what messages under way take.
Blocks are anonymous and pipes have no names: nothing is left behind however a process ends. Linux only, since both
are opened by their numbers under ``/proc``.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import time
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count

from .blocks import Block, block_size, mapped

__all__ = ["Address", "Closed", "Inbox", "Outbox"]

_NOTE = struct.Struct("=qqqii")
"""The channel; where its block is: the offset, the file's serial number, the process, its number for the file."""
_CLOSING = -1
"""The channel of the note that closes an inbox."""
_READ = 2048 * _NOTE.size
"""Bytes of a pipe that are read at once. Notes are written as a whole, so none is cut."""
_PIPE = 1 << 20
"""Bytes that a pipe should hold, if the machine allows: a writer waits where it is full."""


class Closed(Exception):
    """An inbox is closed, or the process that it was in is gone."""


@dataclass(frozen=True)
class Address:
    """Where an inbox is: the node, the process and its pipe; ``inode`` tells that pipe from any other."""

    node: str
    pid: int
    pipe: int
    inode: int

    def open(self) -> int:
        """The pipe, to write to. Raises OSError where this process may not, or cannot see the other."""
        pipe = os.open(f"/proc/{self.pid}/fd/{self.pipe}", os.O_WRONLY)
        if os.fstat(pipe).st_ino != self.inode:
            os.close(pipe)
            raise FileNotFoundError(f"no inbox in process {self.pid}")
        return pipe


@dataclass(frozen=True)
class _Lent:
    """A block of a writer, and where readers find it."""

    block: Block
    offset: int
    serial: int
    file: int


class Inbox:
    """What arrives in this process, by channel. One thread reads; any may close it."""

    def __init__(self, node: str) -> None:
        self._pipe, write = os.pipe()
        os.set_blocking(self._pipe, False)
        # A size that can be set is Linux's own.
        with suppress(OSError, AttributeError):
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE)
        self.address = Address(node, os.getpid(), write, os.fstat(write).st_ino)
        self._poll = select.poll()
        self._poll.register(self._pipe, select.POLLIN)
        self._arrived: dict[int, deque[Block]] = {}
        self._files: dict[tuple[int, int], memoryview] = {}
        self._read: list[Block] = []
        self._closed = False
        _inboxes[self.address] = self
        weakref.finalize(self, _close, self._pipe, write)

    @staticmethod
    def at(address: Address) -> Inbox | None:
        """The inbox of this process with an address."""
        return _inboxes.get(address)

    def reaches(self, addresses: Iterable[Address]) -> bool:
        """Whether this process can write to all inboxes on its node."""
        try:
            for address in addresses:
                if address.node == self.address.node:
                    os.close(address.open())
        except OSError:
            return False
        return True

    def take(self, channel: int, seconds: float | None) -> list[bytearray]:
        """The next message of a channel, as its parts; ``seconds`` is how long to wait for it, None for ever.

        Raises TimeoutError, and :class:`Closed`.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        # Whatever has come is taken note of at every message, so that the pipe never fills.
        self._look()
        while not (waiting := self._arrived.get(channel)):
            if self._closed:
                raise Closed("the inbox is closed")
            self._sleep(deadline)
            self._look()
        block = waiting.popleft()
        parts = block.read()
        self._read.append(block)
        return parts

    def close(self) -> None:
        """Whoever reads now or later finds the inbox closed."""
        with suppress(BrokenPipeError):
            os.write(self.address.pipe, _NOTE.pack(_CLOSING, 0, 0, 0, 0))

    def release(self) -> None:
        """Lets go of all memory of writers, read or not, whoever still knows this inbox: nobody reads any more."""
        self._closed = True
        for block in chain(self._read, *self._arrived.values()):
            block.close()
        for memory in self._files.values():
            memory.release()
        for known in (self._read, self._arrived, self._files):
            known.clear()

    def _sleep(self, deadline: float | None) -> None:
        if deadline is None:
            self._poll.poll()
        elif not self._poll.poll(max(0.0, 1e3 * (deadline - time.monotonic()))) and time.monotonic() >= deadline:
            raise TimeoutError

    def _look(self) -> None:
        """Takes note of what has come."""
        try:
            notes = os.read(self._pipe, _READ)
        except BlockingIOError:
            return
        # Not before another call into the kernel: then what was copied out has been, on every processor.
        for block in self._read:
            block.release()
        self._read.clear()
        for channel, offset, serial, pid, file in _NOTE.iter_unpack(notes):
            if channel == _CLOSING:
                self._closed = True
            else:
                block = Block(self._memory(serial, pid, file)[offset:])
                self._arrived.setdefault(channel, deque()).append(block)

    def _memory(self, serial: int, pid: int, file: int) -> memoryview:
        if (pid, serial) not in self._files:
            try:
                opened = os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR)
            except OSError as error:
                raise Closed(f"process {pid}, which wrote, is gone") from error
            self._files[pid, serial] = mapped(opened)
            os.close(opened)
        return self._files[pid, serial]


class Outbox:
    """This process's way to an inbox."""

    def __init__(self, address: Address) -> None:
        self._pipe = address.open()
        self._process = os.getpid()
        self._pools: dict[int, deque[_Lent]] = {}
        self._files = [self._pipe]
        _outboxes[address] = self
        weakref.finalize(self, _close_all, self._files)

    @staticmethod
    def to(address: Address) -> Outbox:
        """The one to an address. Raises OSError where there is no way."""
        return _outboxes.get(address) or Outbox(address)

    def put(self, channel: int, parts: Sequence[memoryview]) -> None:
        """Sends a message, of contiguous parts of bytes. Raises :class:`Closed` where nobody can read it any more."""
        lent = self._free(block_size(parts))
        lent.block.write(parts)
        try:
            os.write(self._pipe, _NOTE.pack(channel, lent.offset, lent.serial, self._process, lent.file))
        except BrokenPipeError as error:
            raise Closed("who reads is gone") from error

    def _free(self, size: int) -> _Lent:
        """A block that has been read; where there is none, as many more as there are."""
        pool = self._pools.setdefault(size, deque())
        # The one that was sent longest ago is the likeliest to be free.
        if not (pool and pool[0].block.free):
            pool.extendleft(self._made(size, max(1, len(pool))))
        pool.rotate(-1)
        return pool[-1]

    def _made(self, size: int, count: int) -> list[_Lent]:
        """Blocks in one file. What of it nobody has written to takes no memory."""
        file = os.memfd_create("piper-dsl")
        self._files.append(file)
        os.ftruncate(file, count * size)
        memory, serial = mapped(file), next(_serials)
        return [_Lent(Block(memory[k : k + size]), k, serial, file) for k in range(0, count * size, size)]


_inboxes: weakref.WeakValueDictionary[Address, Inbox] = weakref.WeakValueDictionary()
_outboxes: weakref.WeakValueDictionary[Address, Outbox] = weakref.WeakValueDictionary()
_serials = count()


def _close(*files: int) -> None:
    for file in files:
        with suppress(OSError):
            os.close(file)


def _close_all(files: list[int]) -> None:
    _close(*files)
