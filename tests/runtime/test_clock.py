"""The clock of a GPU, with events that are imitated: when its stream comes to what was queued."""

from __future__ import annotations

import time

import pytest
import torch
from runtime_models import WIDTH, Dense, first_and_last

import piper_dsl as piper
from piper_dsl.runtime import rank
from piper_dsl.runtime.clock import clock_of

LATE = 0.25
"""Seconds by which the imitated stream lags behind the CPU, but for its first event."""


class Event:
    """An event of a stream that is late. Its time is known once it was waited for, as CUDA has it."""

    count = 0

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing
        self.known = False

    def record(self) -> None:
        self.at = time.monotonic() + (LATE if Event.count else 0.0)
        Event.count += 1

    def synchronize(self) -> None:
        time.sleep(max(0.0, self.at - time.monotonic()))
        self.known = True

    def elapsed_time(self, other: Event) -> float:
        assert self.known
        assert other.known
        return (other.at - self.at) * 1e3


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(Event, "count", 0)


@pytest.mark.usefixtures("stream")
def test_marks_say_when_the_stream_came_to_them() -> None:
    clock = clock_of("cuda:0")
    Event.count = 0
    clock.begin()
    before = time.monotonic()
    marks = [clock.mark() for _ in range(3)]
    assert time.monotonic() - before < LATE / 2  # nobody waits while a step runs
    seconds = clock.seconds(marks)
    assert seconds == sorted(seconds)
    assert all(abs(found - mark.at) < 0.01 for found, mark in zip(seconds, marks, strict=True))


@pytest.mark.usefixtures("stream")
def test_a_step_is_timed_by_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank, "clock_of", lambda device: clock_of("cuda"))
    x = torch.randn(4, WIDTH)
    schedule = piper.load("1f1b", p=1, m=2)
    with piper.Pipeline(
        [Dense()], schedule, loss_fn=first_and_last, optimizer=lambda p: torch.optim.SGD(p, 0.1)
    ) as pipeline:
        started = time.monotonic()
        pipeline.step(x, x)
        assert pipeline.last is not None
        times = [timed for row in pipeline.last.operations for timed in row]
        assert all(started + LATE / 2 < timed.start <= timed.end for timed in times)
