"""SIGTERM, by which clusters and operating systems ask a program to end: what is under way ends whole first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Sigterm", "Terminated"]


class Terminated(SystemExit):
    """Ends the program as SystemExit does, with the exit code of a SIGTERM, 143. ``at_once``: nothing may wait."""

    def __init__(self, at_once: bool) -> None:
        self.at_once = at_once
        super().__init__(128 + signal.SIGTERM)


class Sigterm:
    """While it listens, a SIGTERM raises :class:`Terminated`: behind what is :meth:`held`, and a second one at once."""

    def __init__(self) -> None:
        self._held = 0
        self._wanted = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listens inside, and puts the handler back that was there. Only the main thread of a program hears signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGTERM, self._handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
            self._wanted = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """What runs inside ends before the program does."""
        self._end_if_wanted()
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        self._end_if_wanted()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._wanted or not self._held:
            raise Terminated(at_once=self._wanted)
        self._wanted = True

    def _end_if_wanted(self) -> None:
        if self._wanted and not self._held:
            raise Terminated(at_once=False)
