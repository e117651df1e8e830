"""The messages of one rank: what waits for its stages, and what waits to be sent."""

from __future__ import annotations

from ..ir.operations import Kind
from .message import Message

__all__ = ["Mail"]


class Mail:
    """Messages of one step, by direction (F or B), stage and microbatch."""

    def __init__(self) -> None:
        self._inbox: dict[tuple[Kind, int, int], dict[int, Message]] = {}
        self._outbox: dict[tuple[Kind, int, int, int], Message] = {}

    def clear(self) -> None:
        self._inbox.clear()
        self._outbox.clear()

    def store(self, kind: Kind, message: Message) -> None:
        """A message for a stage of this rank: it waits for the operation that takes it."""
        self._inbox.setdefault((kind, message.target, message.microbatch), {})[message.source] = message

    def take(self, kind: Kind, stage: int, microbatch: int, sources: tuple[int, ...]) -> list[Message]:
        """What waits for an operation, one message from each source. Raises RuntimeError where one is missing."""
        found = self._inbox.pop((kind, stage, microbatch), {})
        missing = [source for source in sources if source not in found]
        if missing:
            raise RuntimeError(f"nothing arrived from stage {missing[0]}")
        return [found[source] for source in sources]

    def post(self, kind: Kind, message: Message) -> None:
        """A message for a stage of another rank: it waits for its SEND."""
        self._outbox[kind, message.source, message.target, message.microbatch] = message

    def collect(self, kind: Kind, stage: int, target: int, microbatch: int) -> Message:
        """The message that a SEND moves; it leaves this rank."""
        return self._outbox.pop((kind, stage, target, microbatch))
