"""How the ranks of one machine find each other, and open a line for every two that talk."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from torch.distributed import TCPStore  # type: ignore[attr-defined]

__all__ = ["on_one_machine", "opened"]

PATIENCE = 60.0
"""Seconds in which the others have opened theirs."""

_NODE = "RAY_RAYLET_PID"
"""Where Ray tells its processes of their node. Two nodes on one machine are taken for two machines."""

_NUMBER = 8
"""Bytes of a rank's number."""

_CREDENTIALS = struct.Struct("3i")
"""Process, user and group at the other end of a connection."""


def on_one_machine(rank: int, ranks: int, store: TCPStore) -> bool:
    """Whether lines lead from each rank to every other. All ask at once, and hear the same."""
    store.set(f"machine {rank}", _here())
    machines = {store.get(f"machine {other}").decode() for other in range(ranks)}
    return len(machines) == 1 and "" not in machines


def _here() -> str:
    """The machine, Ray's node on it, the network and the user: what lines lead through. Empty where it is not Linux."""
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        network = os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return ""
    node = os.environ.get(_NODE, "")
    return f"{machine} {node} {network} {os.getuid()}" if hasattr(os, "memfd_create") else ""


def opened(rank: int, peers: Iterable[int], store: TCPStore) -> dict[int, socket.socket]:
    """A connection to each of ``peers``, who open theirs at the same time."""
    peers = sorted(peers)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        # A name that the system chooses and that is no file: nothing of it can be left behind.
        listener.bind("")
        listener.listen(len(peers) + 1)
        listener.settimeout(PATIENCE)
        store.set(f"address {rank}", listener.getsockname())
        connections = {peer: _called(rank, peer, store) for peer in peers if peer < rank}
        connections |= dict(_answered(listener, sum(peer > rank for peer in peers)))
    return connections


def _called(rank: int, peer: int, store: TCPStore) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(store.get(f"address {peer}"))
    connection.send(rank.to_bytes(_NUMBER, "little"))
    return connection


def _answered(listener: socket.socket, count: int) -> Iterator[tuple[int, socket.socket]]:
    """The next connections, each with who called."""
    while count:
        connection, _ = listener.accept()
        if _user(connection) != os.getuid():
            connection.close()
            continue
        count -= 1
        yield int.from_bytes(connection.recv(_NUMBER), "little"), connection


def _user(connection: socket.socket) -> int:
    """Whose process is at the other end."""
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(user)
