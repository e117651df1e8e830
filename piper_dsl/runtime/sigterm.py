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
    """While it listens, a SIGTERM raises :class:`Terminated`: behind what is :meth:`held`, and a second one at once.

    One that could not be raised before it stops listening goes to the handler that was there before.
    """

    def __init__(self) -> None:
        self._held = 0
        self._wanted = False
        self._unheard = False
        self._leaving = False

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
            # Raised from here, it would leave our handler where it is.
            self._leaving = True
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
            unheard = self._unheard
            self._wanted = self._unheard = self._leaving = False
            if unheard:
                signal.raise_signal(signal.SIGTERM)

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
        at_once, self._wanted = self._wanted, True
        self._unheard = self._leaving or (self._held > 0 and not at_once)
        if not self._unheard:
            raise Terminated(at_once)

    def _end_if_wanted(self) -> None:
        if self._wanted and not self._held:
            self._unheard = False
            raise Terminated(at_once=False)
