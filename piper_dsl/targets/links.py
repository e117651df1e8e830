"""What a rank needs of its links to the others, whatever carries the messages."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol

from ..runtime.message import Message
from .actions import Transfer

__all__ = ["Links"]


class Links(Protocol):
    """All messages of one rank, coming and going."""

    def begin(self, step: int, signature: Hashable, receives: Iterable[Transfer]) -> None:
        """Starts a step whose data has a ``signature``, the same on all ranks; ``receives`` in their order."""

    def send(self, transfer: Transfer, message: Message | None) -> None:
        """Sends a message; None stands for one that a failure left uncomputed. Does not wait for its arrival.

        Raises ValueError for a message that cannot be sent; nothing is, then.
        """

    def post(self, transfer: Transfer) -> None:
        """Lets a message arrive from here on."""

    def receive(self, transfer: Transfer) -> Message | None:
        """Waits for a message; None for one that a failure left uncomputed. Raises ValueError for a wrong one."""

    def end(self, good: bool) -> None:
        """Ends a step that all ranks have ended; ``good``: on none of them anything failed."""
