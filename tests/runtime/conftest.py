"""One Ray instance for all tests of the runtime, and a limit on every test."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest
import ray

LIMIT = 90
"""Seconds that any one test may take."""


@pytest.fixture(scope="session")
def ray_instance() -> Iterator[None]:
    """Eight CPUs, whatever the machine has: ranks of tests mostly wait."""
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the test took more than {LIMIT} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
