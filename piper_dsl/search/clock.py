"""How long a search has run, and when it has to end."""

from __future__ import annotations

import time

__all__ = ["Clock", "OutOfTime"]


class OutOfTime(Exception):
    """The time limit has passed."""


class Clock:
    """Counts seconds from its making on; ``limit`` is how many there are."""

    def __init__(self, limit: float) -> None:
        self._begin = time.monotonic()
        self._limit = limit

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begin

    @property
    def left(self) -> float:
        return max(0.0, self._limit - self.seconds)

    def check(self) -> None:
        """Raises OutOfTime where the limit has passed."""
        if self.seconds > self._limit:
            raise OutOfTime
