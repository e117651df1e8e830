"""When operations start and end: as the CPU sees it, or as the stream of a GPU comes to it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch

__all__ = ["Clock", "clock_of"]


class Clock(Protocol):
    """Marks moments cheaply while a step runs, and says behind it when they were, in seconds of ``time.monotonic``."""

    def begin(self) -> None:
        """A step starts."""

    def mark(self) -> Any:
        """This moment, behind everything that was started so far."""

    def seconds(self, marks: Sequence[Any]) -> list[float]:
        """When the marks of this step were."""


class _Processor:
    """Operations run while they are called."""

    mark = staticmethod(time.monotonic)

    def begin(self) -> None:
        pass

    def seconds(self, marks: Sequence[float]) -> list[float]:
        return list(marks)


class _Stream:
    """Operations are queued on the current stream of a GPU: events in the queue say when it came to them.

    A mark is a CUDA event, which nobody waits for before the end of the step. One event at its start, which is waited
    for, ties them to the CPU's clock.
    """

    def __init__(self) -> None:
        self._first, self._began = torch.cuda.Event(enable_timing=True), 0.0
        self.begin()

    def begin(self) -> None:
        self._first = self.mark()
        self._first.synchronize()
        self._began = time.monotonic()

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, marks: Sequence[torch.cuda.Event]) -> list[float]:
        for mark in marks:
            mark.synchronize()
        return [self._began + self._first.elapsed_time(mark) / 1e3 for mark in marks]


def clock_of(device: str) -> Clock:
    """The clock for operations on a device."""
    return _Stream() if torch.device(device).type == "cuda" else _Processor()
