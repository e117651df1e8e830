"""The Ray that ranks run on: started here, or a cluster that runs already, on this machine or on others."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray

from ..diagnostics import Diagnostic, PipeError

__all__ = ["joined", "named_cluster", "start_or_join"]

_PATIENCE = 5.0
"""Seconds in which the head of a cluster has to answer; Ray itself would go on for minutes."""

_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How HTTP/2, which Ray's head speaks, begins (RFC 9113, section 3.4): a preface, and settings, here none."""

_SETTINGS = 4
"""The type of the frame that answers it."""


@contextmanager
def joined(address: str) -> Iterator[None]:
    """Within it, pipelines run on the cluster at ``address``: ``host:port`` of its head, or ``auto`` for a local one.

    Raises :class:`PipeError` (P714) where no cluster answers.
    """
    _join(address)
    try:
        yield
    finally:
        ray.shutdown()


def start_or_join(cpus: int) -> None:
    """Joins the cluster of ``RAY_ADDRESS``, or starts Ray with so many CPUs where it names none.

    Raises :class:`PipeError` (P714) where that cluster does not answer.
    """
    address = named_cluster()
    if address is None:
        _init(address="local", num_cpus=cpus, include_dashboard=False)
    else:
        _join(address)


def named_cluster() -> str | None:
    """The cluster that ``RAY_ADDRESS`` names; None where it is to be a Ray of our own."""
    address = os.environ.get("RAY_ADDRESS", "")
    return None if address in ("", "local") else address


def _join(address: str) -> None:
    try:
        if address != "auto":
            _knock(address)
        _init(address=address)
    except (ConnectionError, OSError, ValueError, OverflowError, RuntimeError) as error:
        help_ = "start one with `ray start --head`, and give the address that it names, as in 10.0.0.1:6379"
        raise PipeError(Diagnostic("P714", f"no Ray cluster answers at {address}: {error}", None, help_)) from error


def _knock(address: str) -> None:
    """Raises OSError or ValueError where nothing that may be Ray answers: Ray would wait for two minutes, and exit."""
    host, _, port = address.rpartition(":")
    if "://" in address:
        raise ValueError("pipelines run in the cluster itself, not through a Ray client")
    if not (host and port.isdecimal()):
        raise ValueError("write HOST:PORT, as in 10.0.0.1:6379, or auto")
    with socket.create_connection((host, int(port)), _PATIENCE) as connection:
        if os.environ.get("RAY_USE_TLS", "0") != "0":
            return
        connection.sendall(_GREETING)
        answer = connection.recv(4)
    if len(answer) < 4 or answer[3] != _SETTINGS:
        raise ConnectionError("what listens there is not Ray")


def _init(**options: Any) -> None:
    """Starts Ray, quietly; what the program does on SIGTERM stays as it is, where it does something."""
    before = signal.getsignal(signal.SIGTERM)
    ray.init(logging_level=logging.ERROR, log_to_driver=False, **options)
    if before is not signal.SIG_DFL and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)
