"""The clock of a GPU, with events that are imitated: when its stream comes to what was queued."""

from __future__ import annotations

import pytest
import torch
from runtime_models import WIDTH, Dense, first_and_last

import piper_dsl as piper
from piper_dsl.runtime import clock, rank
from piper_dsl.runtime.clock import clock_of

LATE = 0.25
"""Seconds by which the imitated stream lags behind the CPU, but for its first event."""

TICK = 1e-3
"""Seconds that it takes to put an event into the stream."""


class Clock:
    """Time that passes only where something is done: it does not depend on how busy the machine is."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Event:
    """An event of a stream that is late. Its time is known once it was waited for, as CUDA has it."""

    count = 0
    clock: Clock

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing
        self.known = False

    def record(self) -> None:
        self.clock.sleep(TICK)
        self.at = self.clock.monotonic() + (LATE if Event.count else 0.0)
        Event.count += 1

    def synchronize(self) -> None:
        self.clock.sleep(max(0.0, self.at - self.clock.monotonic()))
        self.known = True

    def elapsed_time(self, other: Event) -> float:
        assert self.known
        assert other.known
        return (other.at - self.at) * 1e3


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time, and a stream that keeps it."""
    time = Clock()
    monkeypatch.setattr(clock, "time", time)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(Event, "clock", time, raising=False)
    monkeypatch.setattr(Event, "count", 0)
    return time


def test_marks_say_when_the_stream_came_to_them(time: Clock) -> None:
    stream = clock_of("cuda:0")
    Event.count = 0
    stream.begin()
    before = time.now
    marks = [stream.mark() for _ in range(3)]
    assert time.now == pytest.approx(before + 3 * TICK)  # nobody waits while a step runs
    assert stream.seconds(marks) == pytest.approx([before + k * TICK + LATE for k in (1, 2, 3)])


def test_a_step_is_timed_by_its_device(time: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank, "clock_of", lambda device: clock_of("cuda"))
    x = torch.randn(4, WIDTH)
    schedule = piper.load("1f1b", p=1, m=2)
    with piper.Pipeline(
        [Dense()], schedule, loss_fn=first_and_last, optimizer=lambda p: torch.optim.SGD(p, 0.1)
    ) as pipeline:
        started = time.now
        pipeline.step(x, x)
        assert pipeline.last is not None
        times = [timed for row in pipeline.last.operations for timed in row]
        # The step waits for its first event; what comes behind it is as late again.
        late = started + 2 * LATE
        assert all(late < timed.start < timed.end < late + 20 * TICK for timed in times)
