"""The lines of a process to others of its machine. While it waits for one, it hears what all of them say.

So slots are emptied whatever a process waits for, and no two can wait for each other. Who waits for something else
calls :meth:`Neighbours.hear` meanwhile.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..runtime.message import Message
from .actions import Transfer
from .line import Arrival, Line
from .parts import from_parts, to_parts

__all__ = ["Neighbours"]


P = ParamSpec("P")
T = TypeVar("T")


def _spreading(method: Callable[Concatenate[Neighbours, P], T]) -> Callable[Concatenate[Neighbours, P], T]:
    """Where it finds an end gone, it closes all lines: whoever waits for this process waits in vain."""

    @wraps(method)
    def spread(neighbours: Neighbours, /, *arguments: P.args, **named: P.kwargs) -> T:
        try:
            return method(neighbours, *arguments, **named)
        except ConnectionError:
            neighbours.close()
            raise

    return spread


class Neighbours:
    """The lines of rank ``number``, or of the driver, over open ``connections``. A rank's are its ``Links``.

    One thread uses them; any may close them. Where another end is gone, whatever waits raises ConnectionError.
    """

    def __init__(self, number: int, connections: Mapping[int, socket.socket]) -> None:
        self.number = number
        self.peers = frozenset(connections)
        self._step = -1
        self._connections = connections
        self._lines = {peer: Line(peer, connection) for peer, connection in connections.items()}
        self._by_file = {line.fileno(): line for line in self._lines.values()}
        self._poll = select.poll()
        for file in self._by_file:
            self._poll.register(file, select.POLLIN)

    def hear(self) -> None:
        """Takes out whatever has come, so that nobody waits for slots in vain."""
        while self._listen(0):
            pass

    @_spreading
    def _listen(self, seconds: float | None = None) -> bool:
        """Waits until somebody says something, and hears all who do; whether anybody did within some time."""
        saying = self._poll.poll(None if seconds is None else 1e3 * seconds)
        for file, _ in saying:
            _known(self._by_file, file).hear()
        return bool(saying)

    def _line(self, peer: int) -> Line:
        return _known(self._lines, peer)

    def _free(self, peer: int) -> Line:
        """The line to a neighbour, once there is a slot for a message."""
        line = self._line(peer)
        while not line.credits:
            self._listen()
        return line

    def _arrival(self, peer: int, tag: int, seconds: float | None = None) -> Arrival:
        """Waits for what has a tag. Raises TimeoutError."""
        arrived = self._line(peer).arrived
        self.hear()
        deadline = None if seconds is None else time.monotonic() + seconds
        while tag not in arrived:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"nothing arrived within {seconds} s")
            self._listen(left)
        return arrived.pop(tag)

    # --- messages of a program: its Links ----------------------------------------------------

    def begin(self, step: int, signature: Hashable, receives: Iterable[Transfer]) -> None:
        """Starts a step. Messages say themselves what they are, so nothing is to be learnt of its data."""
        self._step = step

    @_spreading
    def send(self, transfer: Transfer, message: Message | None) -> None:
        """Sends a message, once there is a slot for it."""
        self._free(transfer.peer).send(transfer.tag, self._step, message)

    def post(self, transfer: Transfer) -> None:
        """Messages come by themselves."""

    def receive(self, transfer: Transfer) -> Message | None:
        """Waits for a message."""
        step, found = self._arrival(transfer.peer, transfer.tag)
        if step != self._step:
            raise ValueError(f"message {transfer.tag} of step {self._step} was due, but that of step {step} arrived")
        assert not isinstance(found, list)
        return found

    def end(self, good: bool) -> None:
        """Nothing is left to do: all that was sent has been taken out."""

    # --- values of a graph -------------------------------------------------------------------

    @_spreading
    def write(self, peer: int, tag: int, value: Any) -> None:
        """Sends a value, once there is a slot for it: a message as its tensors, anything else pickled."""
        line = self._free(peer)
        if isinstance(value, Message):
            line.send(tag, value.step, value)
        else:
            line.give(tag, to_parts(value))

    def read(self, peer: int, tag: int, seconds: float | None = None) -> Any:
        """Waits for a value; ``seconds`` is how long, None for ever. Raises TimeoutError."""
        _, found = self._arrival(peer, tag, seconds)
        return from_parts(found) if isinstance(found, list) else found

    # --- what all ranks agree about ----------------------------------------------------------

    def total(self, number: float) -> float:
        """The sum of a number over all ranks; rank 0 has a line to each, adds them up and tells the others."""
        if self.number:
            self._tell([0], number)
            return self._told(0)
        others = sorted(peer for peer in self.peers if peer > 0)
        found = sum(map(self._told, others), start=number)
        self._tell(others, found)
        return found

    @_spreading
    def _tell(self, peers: Iterable[int], number: float) -> None:
        for peer in peers:
            self._line(peer).tell(number)

    def _told(self, peer: int) -> float:
        numbers = self._line(peer).numbers
        while not numbers:
            self._listen()
        return numbers.popleft()

    # --- the end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Whoever waits here or at another end, now or later, is told by a ConnectionError."""
        for connection in self._connections.values():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Lets go of all connections and memory, whoever still knows these lines: nobody uses them any more."""
        self.close()
        for line in self._lines.values():
            line.release()
        self._by_file.clear()
        self._lines.clear()
        for connection in self._connections.values():
            connection.close()


def _known(lines: Mapping[int, Line], key: int) -> Line:
    """One of the lines. Raises ConnectionError where they have been let go of."""
    if key not in lines:
        raise ConnectionError("the lines of this process are gone")
    return lines[key]
