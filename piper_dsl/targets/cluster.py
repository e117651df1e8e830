"""Joining a Ray cluster that runs already, on this machine or on others."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from ..diagnostics import Diagnostic, PipeError

__all__ = ["joined"]

_PATIENCE = 5.0
"""Seconds in which the head of a cluster has to answer; Ray itself would go on for minutes."""


@contextmanager
def joined(address: str) -> Iterator[None]:
    """Within it, pipelines run on the cluster at ``address``: ``host:port`` of its head, or ``auto`` for a local one.

    Raises :class:`PipeError` (P714) where no cluster answers.
    """
    try:
        if address != "auto":
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), _PATIENCE).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, OSError, ValueError, OverflowError) as error:
        help_ = "start one with `ray start --head`, and give the address that it names, as in 10.0.0.1:6379"
        raise PipeError(Diagnostic("P714", f"no Ray cluster answers at {address}: {error}", None, help_)) from error
    try:
        yield
    finally:
        ray.shutdown()
