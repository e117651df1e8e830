"""A time limit of our own on steps: says what every rank is doing, then ends what hangs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..diagnostics import Diagnostic
from .crew import kill_all
from .roll_call import roll_call

__all__ = ["Watch", "Watchdog"]

_log = logging.getLogger("piper_dsl")

START = 600.0
"""Seconds the ranks may take to start: to be sent, to import, to connect, to compile."""
ANSWER = 600.0
"""Seconds the ranks may take for what they are asked between steps: to write a checkpoint, to hand out their state."""
FIRST_STEP = 600.0
"""Seconds a first step may take without a stated time-out: it warms up."""
FLOOR, FACTOR = 60.0, 20.0
"""A later step may take this many seconds, or this many times the longest so far."""


class Watch:
    """``what`` (a step, a start) under watch; ``verdict`` is set if it took too long and its ranks were ended."""

    def __init__(self, actors: Sequence[Any], limit: float, what: str, help: str) -> None:
        self.verdict: Diagnostic | None = None
        self._actors = actors
        self._limit = limit
        self._what, self._help = what, help
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="piper-dsl watchdog", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The step is over; waits for a verdict that is being written."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        if self._over.wait(self._limit / 2):
            return
        _log.warning("%s takes long (%.0f s): %s", self._what, self._limit / 2, "; ".join(self._doing()))
        if self._over.wait(self._limit / 2):
            return
        message = f"{self._what} did not end within {self._limit:g} s"
        doing = tuple(self._doing())
        if self._over.is_set():
            # It ended while the ranks were asked: what has succeeded is not killed.
            return
        self.verdict = Diagnostic("P711", message, None, self._help, notes=doing)
        kill_all(self._actors)

    def _doing(self) -> list[str]:
        return [f"rank {rank}: {doing or 'is dead'}" for rank, doing in enumerate(roll_call(self._actors))]


class Watchdog:
    """Watches steps. ``timeout`` in seconds, or None to let past steps decide."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._longest = 0.0
        self._steps = 0

    @contextmanager
    def over(self, actors: Sequence[Any], steps: int = 1) -> Iterator[Watch]:
        """Watches so many steps, which run inside; :attr:`Watch.verdict` tells if they were ended."""
        started = time.monotonic()
        help_ = "a slow step needs a larger `timeout`; a hang shows above who waits for whom"
        watch = Watch(actors, self._limit() * steps, "the step" if steps == 1 else f"{steps} steps", help_)
        try:
            with _watched(watch):
                yield watch
        finally:
            self._longest = max(self._longest, (time.monotonic() - started) / steps)
            self._steps += steps

    @contextmanager
    def over_start(self, actors: Sequence[Any]) -> Iterator[Watch]:
        """Watches the start of the ranks, which may add themselves to ``actors`` meanwhile."""
        help_ = "a rank that does not answer is stuck where its modules are unpickled or imported"
        with _watched(Watch(actors, START, "the start of the ranks", help_)) as watch:
            yield watch

    @contextmanager
    def over_answer(self, actors: Sequence[Any]) -> Iterator[Watch]:
        """Watches what the ranks are asked between steps."""
        help_ = "a rank may wait for the disk, or be stuck where the state of its modules is made"
        with _watched(Watch(actors, ANSWER, "what the ranks were asked between steps", help_)) as watch:
            yield watch

    def _limit(self) -> float:
        if self._timeout is not None:
            return self._timeout
        return max(FLOOR, FACTOR * self._longest) if self._steps else FIRST_STEP


@contextmanager
def _watched(watch: Watch) -> Iterator[Watch]:
    try:
        yield watch
    finally:
        watch.end()
