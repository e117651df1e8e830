"""How the processes of one machine find each other, and open a line for every two that talk."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

from torch.distributed import TCPStore  # type: ignore[attr-defined]

__all__ = ["Meeting", "has_lines"]

PATIENCE = 60.0
"""Seconds in which the others have opened theirs."""

_NUMBER = struct.Struct("=q")
"""A process's number, with which it calls."""

_CREDENTIALS = struct.Struct("3i")
"""Process, user and group at the other end of a connection."""


class Meeting:
    """The part of the process ``number`` (of a rank, or the driver's) in a meeting at a ``store``.

    ``node`` is Ray's: two nodes on one machine are taken for two machines. A context manager: it ends the meeting, not
    the connections.
    """

    def __init__(self, number: int, store: TCPStore, node: str) -> None:
        self._number = number
        self._store = store
        self._listener: socket.socket | None = None
        self._here = _here(node)
        if self._here:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            # A name that the system chooses and that is no file: nothing of it can be left behind.
            self._listener.bind("")
            self._listener.listen(socket.SOMAXCONN)
            self._listener.settimeout(PATIENCE)
            store.set(f"address {number}", self._listener.getsockname())
        store.set(f"machine {number}", self._here)

    def __enter__(self) -> Meeting:
        return self

    def __exit__(self, *_: object) -> None:
        if self._listener is not None:
            self._listener.close()

    def near(self, numbers: Iterable[int]) -> set[int]:
        """Which of the processes are on this machine, so that lines lead to them; waits for those that are late."""
        if not self._here:
            return set()
        return {other for other in numbers if self._store.get(f"machine {other}").decode() == self._here}

    def connect(self, peers: Iterable[int]) -> dict[int, socket.socket]:
        """A connection to each of some processes that are near, who open theirs too. The higher number calls."""
        peers = sorted(peers)
        connections = {peer: self._called(peer) for peer in peers if peer < self._number}
        waiting = {peer for peer in peers if peer > self._number}
        while waiting:
            peer, connection = self._answered()
            waiting.discard(peer)
            connections[peer] = connection
        return connections

    def _called(self, peer: int) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(self._store.get(f"address {peer}"))
        connection.send(_NUMBER.pack(self._number))
        return connection

    def _answered(self) -> tuple[int, socket.socket]:
        """The next who calls, says who it is, and is of our user."""
        assert self._listener is not None
        while True:
            connection, _ = self._listener.accept()
            said = connection.recv(_NUMBER.size) if _user(connection) == os.getuid() else b""
            if said:
                return _NUMBER.unpack(said)[0], connection
            connection.close()


def has_lines() -> bool:
    """Whether processes of this machine can have lines to each other."""
    return bool(_here(""))


def _here(node: str) -> str:
    """The machine, Ray's node on it, the network and the user: what lines lead through. Empty where it is not Linux."""
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        network = os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return ""
    return f"{machine} {node} {network} {os.getuid()}" if hasattr(os, "memfd_create") else ""


def _user(connection: socket.socket) -> int:
    """Whose process is at the other end."""
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(user)
