"""SIGTERM: what is under way ends whole, with a checkpoint where there can be one; no signal is lost."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from runtime_checkpoints import BATCHES, ENDINGS, TARGETS, Stage, breakable, saving_pipeline
from runtime_models import HOT
from runtime_processes import eventually

import piper_dsl as piper

pytestmark = pytest.mark.usefixtures("warm")


class Signalling(Stage):
    """Sends the driver a SIGTERM on an input beyond HOT."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = os.getpid()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        if hidden.max() > HOT:
            os.kill(self.driver, signal.SIGTERM)
        return super().forward(hidden.clamp(max=1.0))


def _exit_code(pipeline: piper.Pipeline, program: Callable[[], object]) -> object:
    """How a program ends that listens to SIGTERM; None if it goes on."""
    try:
        with pipeline.saving_on_sigterm():
            program()
    except SystemExit as end:
        return end.code
    return None


def _terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """The signals that the program's own handler of SIGTERM hears."""
    signals: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
    yield signals
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("target", TARGETS)
def test_sigterm_ends_behind_the_step_with_a_checkpoint(target: str, tmp_path: Path, heard: list[int]) -> None:
    hot = BATCHES[1][0].clone()
    hot[2:4] = 2 * HOT
    batches = [BATCHES[0], (hot, BATCHES[1][1]), BATCHES[2]]
    stages = [Signalling(), *(Stage() for _ in range(3))]
    losses: list[float] = []
    with saving_pipeline(tmp_path, target, stages=stages) as pipeline:
        assert _exit_code(pipeline, lambda: losses.extend(pipeline.step(*batch) for batch in batches)) == 143
    assert [path.name for path in tmp_path.iterdir()] == ["step-2"]
    assert heard == []
    with saving_pipeline(None, target, stages=stages) as undisturbed:
        wanted = [undisturbed.step(*batch) for batch in batches]
    # The program's own handler is back.
    assert eventually(lambda: bool(heard), 5)
    with saving_pipeline(tmp_path, target, stages=stages) as resumed:
        assert resumed.resume() == 2
        assert resumed.step(*batches[2]) == wanted[2]


def test_sigterm_between_steps_ends_at_once_and_a_second_one_without_a_checkpoint(tmp_path: Path) -> None:
    def between_steps() -> None:
        pipeline.step(*BATCHES[0])
        _terminate()
        pipeline.step(*BATCHES[1])

    def twice() -> None:
        pipeline.step(*BATCHES[1])
        with pipeline._sigterm.held():
            _terminate()
            _terminate()

    with saving_pipeline(tmp_path) as pipeline:
        assert _exit_code(pipeline, between_steps) == 143
        assert [path.name for path in tmp_path.iterdir()] == ["step-1"]
        assert _exit_code(pipeline, twice) == 143
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


@pytest.mark.parametrize("leaving", [False, True])
def test_a_sigterm_that_nobody_heard_goes_to_the_handler_before(
    leaving: bool, tmp_path: Path, heard: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # While a step runs that fails, so that what is behind it is not reached; or while the handler is put back.
    put = signal.signal

    def put_late(number: int, handler: Any) -> Any:
        _terminate()
        return put(number, handler)

    with saving_pipeline(tmp_path) as pipeline:

        def leave() -> None:
            with pipeline.saving_on_sigterm():
                if leaving:
                    monkeypatch.setattr(signal, "signal", put_late)
                else:
                    with pipeline._sigterm.held():
                        _terminate()
                        raise LookupError

        with nullcontext() if leaving else pytest.raises(LookupError):
            leave()
        monkeypatch.undo()
        assert heard == [signal.SIGTERM]
        _terminate()
        assert heard == [signal.SIGTERM] * 2


@pytest.mark.parametrize(("ending", "why"), ENDINGS.values(), ids=ENDINGS)
def test_sigterm_writes_no_checkpoint_of_ranks_that_are_gone_or_out_of_step(
    ending: Callable[[piper.Pipeline], None], why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def program() -> None:
        ending(pipeline)
        _terminate()

    with breakable(tmp_path) as pipeline, caplog.at_level(logging.WARNING, "piper_dsl"):
        assert _exit_code(pipeline, program) == 143
    assert f"ended by SIGTERM, without a checkpoint: {why}" in caplog.text
    assert list(tmp_path.iterdir()) == []
