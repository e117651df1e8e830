"""A rank killed at a random moment: told at once, replaced, nothing lost, nothing left behind.

``PIPER_KILLS=20`` in the environment makes it 20 kills of each target, in turn while it steps, saves and starts.
"""

from __future__ import annotations

import logging
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from runtime_models import WIDTH, sgd
from runtime_processes import alive, eventually, title
from runtime_reference import assert_close
from torch import nn

import piper_dsl as piper

pytestmark = pytest.mark.usefixtures("ray_instance")

Ranks = Callable[[], set[int]]

KILLS = int(os.environ.get("PIPER_KILLS", "1"))
BATCHES = [torch.randn(2, 8, WIDTH, generator=torch.Generator().manual_seed(seed)).unbind() for seed in range(9)]
TOLD = 5.0
"""Seconds in which a death is told."""


class Slow(nn.Module):
    """Takes its time, to step and to be saved."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.large = nn.Linear(1500, 1500)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02)
        return nn.functional.dropout(torch.tanh(self.linear(hidden)), 0.3, self.training) + self.large.bias[0]


def _pipeline(target: str, folder: Path, **options: Any) -> piper.Pipeline:
    torch.manual_seed(0)
    stages, schedule = [Slow(), Slow()], piper.load("1f1b", p=2, m=4)
    saves = {"checkpoints": folder, "checkpoint_every": 2}
    loss = nn.functional.mse_loss
    return piper.Pipeline(stages, schedule, loss_fn=loss, optimizer=sgd, target=target, **saves, **options)


def _trained(pipeline: piper.Pipeline) -> tuple[list[float], dict[int, dict[str, torch.Tensor]]]:
    """The losses of training and of an evaluation between each two steps, and the state behind them."""
    losses = []
    for batch in BATCHES:
        losses += [pipeline.step(*batch), pipeline.evaluate(*BATCHES[0])]
    return losses, pipeline.state_dict()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with _pipeline("local", tmp_path_factory.mktemp("undisturbed")) as pipeline:
        return _trained(pipeline)


class Killer(threading.Thread):
    """Kills a rank: a while after what ``moment`` waits for."""

    def __init__(self, moment: Callable[[], bool], delay: float, own_ranks: Ranks, chance: random.Random) -> None:
        super().__init__()
        self.pid = 0
        self.at = 0.0
        self.seen: set[int] = set()
        self._moment, self._delay, self._own_ranks, self._chance = moment, delay, own_ranks, chance

    def run(self) -> None:
        if eventually(self._moment, 100):
            time.sleep(self._delay)
            self.seen = self._own_ranks()
            self.pid = self._chance.choice(sorted(self.seen))
            self.at = time.time()
            os.kill(self.pid, signal.SIGKILL)


def _semaphores(pids: set[int]) -> set[str]:
    """What processes have in shared memory of their compiled graphs."""
    found = {name: re.match(r"sem\.(?:hdr|obj)(\d+)-", name) for name in os.listdir("/dev/shm")}
    return {name for name, match in found.items() if match and int(match[1]) in pids}


@pytest.mark.parametrize("kill", range(KILLS))
@pytest.mark.parametrize("target", ["ray-dag", "ray-program"])
def test_a_rank_killed_at_any_moment_is_replaced_and_nothing_is_lost(
    target: str, kill: int, undisturbed: Any, tmp_path: Path, own_ranks: Ranks, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(kill)
    moment, longest = [
        (lambda: (tmp_path / "step-2").exists(), 1.5),
        (lambda: bool(list(tmp_path.glob("step-4.part/rank-*"))), 0.1),
        (lambda: bool(own_ranks()), 3.0),
    ][kill % 3]
    # Those of processes that were killed stay, and numbers of processes come again.
    before = set(os.listdir("/dev/shm"))
    killer = Killer(moment, chance.uniform(0, longest), own_ranks, chance)
    killer.start()
    with caplog.at_level(logging.WARNING, "piper_dsl"), _pipeline(target, tmp_path, max_restarts=1) as pipeline:
        losses, state = _trained(pipeline)
        ranks = own_ranks()
    killer.join()
    assert losses == undisturbed[0]
    assert_close(state, undisturbed[1], 0.0)
    (told,) = [record for record in caplog.records if record.name == "piper_dsl"]
    assert re.match(rf"rank [01] (\(process {killer.pid}\) )?died ", told.getMessage())
    assert told.created - killer.at < TOLD
    assert len(ranks) == 2
    pids = ranks | killer.seen
    assert eventually(lambda: not alive(pids), 30), [title(pid) for pid in alive(pids)]
    assert own_ranks() == set()
    assert _semaphores(pids | {os.getpid()}) - before == set()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-6", "step-8"]
