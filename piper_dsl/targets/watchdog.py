"""A time limit of our own on steps: says what every rank is doing, then ends what hangs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray

from ..diagnostics import Diagnostic

__all__ = ["Watch", "Watchdog"]

_log = logging.getLogger("piper_dsl")

FIRST_STEP = 600.0
"""Seconds a first step may take without a stated time-out: it imports, compiles and warms up."""
FLOOR, FACTOR = 60.0, 20.0
"""A later step may take this many seconds, or this many times the longest so far."""


class Watch:
    """One step under watch; ``verdict`` is set if it took too long and its ranks were ended."""

    def __init__(self, actors: Sequence[Any], limit: float) -> None:
        self.verdict: Diagnostic | None = None
        self._actors = actors
        self._limit = limit
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
        _log.warning("the step takes long (%.0f s): %s", self._limit / 2, "; ".join(self._doing()))
        if self._over.wait(self._limit / 2):
            return
        message = f"the step did not end within {self._limit:g} s"
        help_ = "a slow step needs a larger `timeout`; a hang shows above who waits for whom"
        doing = tuple(self._doing())
        if self._over.is_set():
            # It ended while the ranks were asked: what has succeeded is not killed.
            return
        self.verdict = Diagnostic("P711", message, None, help_, notes=doing)
        for actor in self._actors:
            ray.kill(actor)

    def _doing(self) -> list[str]:
        """What every rank is doing; asked beside the graph, so a busy rank answers too."""
        asked = [actor.where.remote() for actor in self._actors]
        lines = []
        for rank, answer in enumerate(asked):
            try:
                lines.append(f"rank {rank}: {ray.get(answer, timeout=2.0)}")
            except (ray.exceptions.RayError, TimeoutError):
                lines.append(f"rank {rank}: does not answer")
        return lines


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
        watch = Watch(actors, self._limit() * steps)
        try:
            yield watch
        finally:
            watch.end()
            self._longest = max(self._longest, (time.monotonic() - started) / steps)
            self._steps += steps

    def _limit(self) -> float:
        if self._timeout is not None:
            return self._timeout
        return max(FLOOR, FACTOR * self._longest) if self._steps else FIRST_STEP
