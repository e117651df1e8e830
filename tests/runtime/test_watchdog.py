"""The limit of time: what ends while the ranks are still asked has succeeded."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from piper_dsl.targets import watchdog


@pytest.mark.parametrize("ends", [True, False])
def test_what_ends_while_the_ranks_are_asked_is_not_declared_dead(ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, told, killed = threading.Semaphore(0), threading.Semaphore(0), list[Any]()

    def roll_call(actors: Sequence[str]) -> list[str]:
        asked.release()
        assert told.acquire(timeout=30)
        return ["computing"]

    monkeypatch.setattr(watchdog, "roll_call", roll_call)
    monkeypatch.setattr(watchdog, "kill_all", killed.extend)
    watch = watchdog.Watch(["actor"], 0.2, "the step", "help")
    # Half-way, for a warning; and where the limit is over.
    assert asked.acquire(timeout=30)
    told.release()
    assert asked.acquire(timeout=30)
    if ends:
        threading.Timer(0.2, told.release).start()
    else:
        told.release()
        watch._thread.join(30)
    watch.end()
    assert (watch.verdict is None, killed) == ((True, []) if ends else (False, ["actor"]))
