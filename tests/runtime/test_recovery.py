"""Restarts wherever a rank dies, on a target that does as it is told: what it computes is a list of the batches."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runtime_reference import only

import piper_dsl as piper
from piper_dsl.diagnostics import Diagnostic
from piper_dsl.runtime.checkpoint import CheckpointFolder
from piper_dsl.runtime.recovery import Recovery, Trained

IDENTITY = {"schedule": "s", "ranks": 1, "program": "p", "model": {}}


class Mortal:
    """One rank, which dies in the calls whose numbers are given, and fails in others; ``trained`` is its state."""

    def __init__(self, deaths: set[int], failures: set[int]) -> None:
        self.trained: list[Any] = []
        self.restarts = 0
        self.places = True
        self._deaths, self._failures = deaths, failures
        self._calls = 0

    def _live(self) -> None:
        self._calls += 1
        if self._calls in self._deaths:
            self.trained = ["lost"]
            raise piper.PipeError(Diagnostic("P713", "rank 0 died"))

    def run(self, steps: Any) -> Trained:
        self._live()
        if self._calls in self._failures:
            return Trained([], piper.PipeError(Diagnostic("P710", "too hot")))
        reports = []
        for step in steps:
            self.trained.append(step)
            reports.append(list(self.trained))
        return Trained(reports)

    def state(self) -> list[Any]:
        self._live()
        return list(self.trained)

    def save(self, folder: str) -> list[str]:
        (Path(folder) / "rank-0.pt").write_text("half")
        self._live()
        (Path(folder) / "rank-0.pt").write_text(json.dumps(self.trained))
        return ["digest"]

    def restore(self, folder: str) -> None:
        self._live()
        self.trained = json.loads((Path(folder) / "rank-0.pt").read_text())

    def restart(self) -> None:
        if not self.places:
            raise piper.PipeError(Diagnostic("P714", "no place"))
        self.restarts += 1
        self.trained = []


def _training(recovery: Recovery, target: Mortal) -> list[Any]:
    """Five steps, with a checkpoint every two and a look at the state behind each."""
    found = []
    for step in range(1, 6):
        found += recovery.train([step]).reports
        recovery.stepped(step)
        found.append(recovery.survive(target.state))
    return found


WANTED = [list(range(1, step + 1)) for step in range(1, 6) for _ in range(2)]
Make = Callable[..., tuple[Recovery, Mortal]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def call(deaths: set[int], restarts: int, failures: set[int] = frozenset()) -> tuple[Recovery, Mortal]:
        target = Mortal(deaths, failures)
        return Recovery(target, target.run, CheckpointFolder(tmp_path, IDENTITY), 2, restarts), target

    return call


@pytest.mark.parametrize("death", range(1, 13))
def test_a_death_in_any_call_changes_nothing(
    death: int, make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Calls 1, 2: a step and a look at the state; 4: a checkpoint; and so on.
    recovery, target = make({death}, 1)
    with caplog.at_level(logging.WARNING, "piper_dsl"):
        assert _training(recovery, target) == WANTED
    assert target.restarts == 1
    assert "rank 0 died; all ranks start anew from" in caplog.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-2", "step-4"]


def test_deaths_while_recovering_are_survived_too(make: Make) -> None:
    # Dies in step 4, where step 3 runs again, and where the checkpoint is taken up.
    recovery, target = make({8, 10, 11}, 3)
    assert _training(recovery, target) == WANTED
    assert target.restarts == 3


def test_where_no_restart_is_left_the_death_is_told_and_nothing_half_stays(make: Make, tmp_path: Path) -> None:
    recovery, target = make({3, 7}, 1)
    with pytest.raises(piper.PipeError) as error:
        _training(recovery, target)
    assert (only(error).code, target.restarts) == ("P713", 1)
    assert not list(tmp_path.glob("*.part"))


def test_a_step_that_fails_when_it_is_made_again_is_told_and_can_be_made_once_more(make: Make) -> None:
    # A checkpoint of two steps; a call of two more; dies in the fifth, and the fourth fails when it is made again.
    recovery, target = make({4}, 1, {7})
    assert recovery.train([1, 2]).reports == [[1], [1, 2]]
    recovery.stepped(2)
    assert recovery.train([3, 4]).reports == [[1, 2, 3], [1, 2, 3, 4]]
    with pytest.raises(piper.PipeError, match="too hot"):
        recovery.train([5])
    assert target.trained == [1, 2, 3]
    assert recovery.train([5]).reports == [[1, 2, 3, 4, 5]]
    assert recovery.survive(target.state) == [1, 2, 3, 4, 5]


def test_a_restart_for_which_there_is_no_place_says_so_and_who_died(make: Make) -> None:
    recovery, target = make({3}, 2)
    recovery.train([1, 2])
    recovery.stepped(2)
    target.places = False
    with pytest.raises(piper.PipeError) as error:
        recovery.train([3])
    assert [(finding.code, finding.message) for finding in error.value.diagnostics] == [
        ("P713", "rank 0 died"),
        ("P714", "no place"),
    ]
    # Whoever asks again is not told of ranks that know nothing.
    target.places = True
    target.restart()
    assert recovery.survive(target.state) == [1, 2]
