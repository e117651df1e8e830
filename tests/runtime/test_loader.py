"""Batches that ranks draw by themselves: what a driver-fed run gives, to the bit, and every end and fault of data."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runtime_models import HOT, WIDTH, FaultyWeight, RunningMean, sgd
from runtime_reference import assert_close, only
from torch import nn

import piper_dsl as piper

pytestmark = pytest.mark.usefixtures("warm")

TARGETS = ["local", "ray-dag", "ray-program"]
MSE = nn.functional.mse_loss
Batch = tuple[torch.Tensor, torch.Tensor]


def _batch(step: int, size: int = 4) -> Batch:
    x, y = torch.rand(2, size, WIDTH, generator=torch.Generator().manual_seed(step))
    return x, y


@dataclass(frozen=True)
class Steps:
    """Batches by step, and a note of who draws which; ``at`` does something first."""

    notes: Path
    count: int = 7
    at: Callable[[int], Any] = len

    def __call__(self) -> Steps:
        return self

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, step: int) -> Batch:
        with self.notes.open("a") as file:
            file.write(f"{os.getpid()} {step}\n")
        found = self.at(step) if self.at is not len else None
        return _batch(step) if found is None else found

    def drawn(self) -> dict[int, list[int]]:
        """Steps by process."""
        rows = [tuple(map(int, line.split())) for line in self.notes.read_text().splitlines()]
        return {process: [step for other, step in rows if other == process] for process, _ in rows}


@dataclass(frozen=True)
class Stream:
    """The same as an iterable, with no length."""

    count: int

    def __call__(self) -> Iterator[Batch]:
        return map(_batch, range(self.count))


def trained_by(target: str, name: str = "1f1b", ranks: int = 2, **arguments: Any) -> piper.Pipeline:
    torch.manual_seed(0)
    schedule = piper.load(name, p=ranks, m=2)
    stages = [FaultyWeight(), *(nn.Linear(WIDTH, WIDTH) for _ in range(schedule.stages - 2)), RunningMean()]
    given = {"loss_fn": MSE, "optimizer": sgd, "timeout": 60.0, "target": target, **arguments}
    return piper.Pipeline(stages, schedule, **given)


def fed(steps: int, **arguments: Any) -> tuple[list[float], dict[int, dict[str, torch.Tensor]]]:
    """Losses and weights of steps that the driver feeds."""
    with trained_by("local", **arguments) as pipeline:
        return [pipeline.step(*_batch(step)) for step in range(steps)], pipeline.state_dict()


@pytest.mark.parametrize(
    ("target", "per_call"), [("local", 1), ("local", 3), ("ray-dag", 3), ("ray-program", 1), ("ray-program", 3)]
)
def test_ranks_draw_what_the_driver_would_have_fed_them(target: str, per_call: int, tmp_path: Path) -> None:
    loader = Steps(tmp_path / "notes")
    losses, weights = fed(7, ranks=3, accumulate=2)
    with trained_by(target, ranks=3, accumulate=2, loader=loader) as pipeline:
        assert list(pipeline.train_loaded(2, per_call)) == losses[:2]
        assert pipeline.step(*_batch(2)) == losses[2]
        assert list(pipeline.train_loaded(steps_per_call=per_call)) == losses[3:]
        assert pipeline.last is not None
        assert pipeline.last.loss == losses[-1]
        # All is done; there is nothing to wait for.
        assert list(pipeline.train_loaded(steps_per_call=per_call)) == []
        assert_close(pipeline.state_dict(), weights, 0.0)
    drawn = loader.drawn()
    if target != "local":
        # The driver draws where it begins; of the ranks, those of the first and the last stage do.
        assert drawn.pop(os.getpid()) == [0, 3]
        assert list(drawn.values()) == [[0, 1, 3, 4, 5, 6]] * 2


@pytest.mark.parametrize("target", TARGETS)
def test_an_iterable_is_passed_over_up_to_a_step(target: str) -> None:
    losses, _ = fed(5)
    with trained_by(target, loader=Stream(5)) as pipeline:
        assert list(pipeline.train_loaded(3, 2)) == losses[:3]
        found = []
        with pytest.raises(piper.PipeError) as error:
            found += pipeline.train_loaded(9, 2)
        assert only(error).message.endswith("the batches of the loader end before step 5")
        assert pipeline.last is not None
        assert pipeline.last.loss == losses[4]
        assert pipeline.held() == [0, 0]


@pytest.mark.parametrize(("name", "replicas"), [("chimera", 1), ("zb_v", 1), ("1f1b", 2)])
def test_any_rank_with_an_end_of_the_model_draws(name: str, replicas: int, tmp_path: Path) -> None:
    losses, weights = fed(3, name=name, replicas=replicas)
    with trained_by("local", name, replicas=replicas, loader=Steps(tmp_path / "notes", 3)) as pipeline:
        assert list(pipeline.train_loaded()) == losses
        assert_close(pipeline.state_dict(), weights, 0.0)


def test_a_resumed_run_goes_on_with_the_batch_of_its_step(tmp_path: Path) -> None:
    losses, _ = fed(7)
    arguments = {"checkpoints": tmp_path / "saved", "checkpoint_every": 3, "loader": Steps(tmp_path / "notes")}
    with trained_by("local", **arguments) as pipeline:
        assert list(pipeline.train_loaded(4, 8)) == losses[:4]
    with trained_by("local", **arguments) as pipeline:
        assert pipeline.resume() == 3
        assert list(pipeline.train_loaded(steps_per_call=8)) == losses[3:]


def _missing(step: int) -> None:
    if step == 2:
        raise KeyError("no such shard")


def _smaller(step: int) -> Batch | None:
    return _batch(step, 2) if step == 2 else None


def _odd(step: int) -> Batch | None:
    return _batch(step, 3) if step == 2 else None


def _untold(step: int) -> Any:
    return "a batch" if step == 2 else None


def _inputs_alone(step: int) -> tuple[torch.Tensor] | None:
    return _batch(step)[:1] if step == 2 else None


def _hot(step: int) -> Batch | None:
    return (_batch(step)[0] + 2 * HOT, _batch(step)[1]) if step == 2 else None


def _seeded() -> Iterator[Batch]:
    """Drawn from the generators that all share, seeded once."""
    torch.manual_seed(7)
    np.random.seed(7)
    random.seed(7)
    while True:
        x = torch.rand(4, WIDTH)
        yield x, x * random.random() + torch.from_numpy(np.random.rand(4, WIDTH)).float()


@pytest.mark.parametrize(("target", "per_call"), [("local", 1), ("local", 3), ("ray-dag", 3), ("ray-program", 3)])
def test_random_numbers_of_loaders_are_their_own(target: str, per_call: int) -> None:
    with trained_by("local") as pipeline:
        losses = list(pipeline.train(islice(_seeded(), 6)))
    with trained_by(target, loader=_seeded) as pipeline:
        before = torch.get_rng_state(), random.getstate()
        assert list(pipeline.train_loaded(6, per_call)) == losses
        assert torch.equal(torch.get_rng_state(), before[0])
        assert random.getstate() == before[1]


class Unsteady:
    """An iterator that once, in every process, cannot read a batch; what comes next is the one behind it."""

    failed = False

    def __init__(self, bad: int) -> None:
        self.step, self.bad = 0, bad

    def __iter__(self) -> Unsteady:
        return self

    def __next__(self) -> Batch:
        self.step += 1
        if self.step == self.bad + 1 and not Unsteady.failed:
            Unsteady.failed = True
            raise OSError("the disk is busy")
        return _batch(self.step - 1)


def test_an_iterable_that_raised_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unsteady, "failed", False)
    losses, _ = fed(5)
    with trained_by("local", loader=partial(Unsteady, 2)) as pipeline:
        found: list[float] = []
        with pytest.raises(piper.PipeError, match="the disk is busy"):
            found.extend(pipeline.train_loaded(5))
        assert found + list(pipeline.train_loaded(5)) == losses


FAULTS = {
    "raises": (_missing, "P710", "stage 0, forward (F) of microbatch 0: KeyError: 'no such shard'"),
    "another shape": (_smaller, "P703", "the batch of step 2 has other shapes than that of step 0"),
    "no targets": (_inputs_alone, "P703", "the batch of step 2 has other shapes than that of step 0"),
    "not to be cut": (_odd, "P703", "a batch of 3 inputs cannot be cut into 2 equal microbatches"),
    "no batch": (_untold, "P703", "(inputs,) where there are no targets, not a str"),
    "fails in a stage": (_hot, "P710", "backward (B) of microbatch 0: ValueError"),
}


@pytest.mark.parametrize("target", ["local", "ray-program"])
@pytest.mark.parametrize(("at", "code", "said"), FAULTS.values(), ids=FAULTS)
def test_a_step_without_good_data_leaves_no_trace(
    at: Callable[[int], Any], code: str, said: str, target: str, tmp_path: Path
) -> None:
    losses, _ = fed(3)
    with trained_by(target, loader=Steps(tmp_path / "notes", 7, at)) as pipeline:
        found: list[float] = []
        with pytest.raises(piper.PipeError) as error:
            found.extend(pipeline.train_loaded(steps_per_call=4))
        assert only(error).code == code
        assert said in only(error).message
        assert pipeline.last is not None
        assert pipeline.last.loss == losses[1]
        assert pipeline.step(*_batch(2)) == losses[2]


def _random(step: int) -> Batch:
    return torch.rand(4, WIDTH), torch.rand(4, WIDTH)


@pytest.mark.parametrize("target", TARGETS)
def test_a_loader_that_draws_at_random_is_found_out(target: str, tmp_path: Path) -> None:
    with trained_by(target, loader=Steps(tmp_path / "notes", 7, _random)) as pipeline:
        found: list[float] = []
        with pytest.raises(piper.PipeError) as error:
            found.extend(pipeline.train_loaded())
        assert only(error).code == "P703"
        assert "the loader gave the driver another batch for step 0 than rank" in only(error).message
        assert only(error).help == "seed what is random in it: it is called in several processes"
        assert len(found) == 1


def _stuck(step: int) -> None:
    time.sleep(60 * (step == 1))


def test_a_rank_that_is_stuck_in_its_loader_says_so(tmp_path: Path) -> None:
    with trained_by("ray-program", loader=Steps(tmp_path / "notes", 7, _stuck), timeout=5.0, ranks=3) as pipeline:
        training = pipeline.train_loaded()
        next(training)
        with pytest.raises(piper.PipeError) as error:
            next(training)
    assert only(error).code == "P711"
    said = [note.partition(", for")[0] for note in only(error).notes]
    drawing, waiting = "drawing the batch of step 1", "waiting at the beginning of step 1"
    assert said == [f"rank 0: {drawing}", f"rank 1: {waiting}", f"rank 2: {drawing}"]


def test_loaders_that_cannot_be_used_are_told_of(tmp_path: Path) -> None:
    with trained_by("local") as pipeline, pytest.raises(piper.PipeError, match="the pipeline has no loader"):
        pipeline.train_loaded()
    with trained_by("local", loader=Stream(3)) as pipeline:
        with pytest.raises(piper.PipeError, match="the batches of the loader have no length"):
            pipeline.train_loaded()
        with pytest.raises(piper.PipeError, match="steps_per_call must be at least 1, not 0"):
            pipeline.train_loaded(3, 0)
    with pytest.raises(piper.PipeError) as error:
        trained_by("local", loader=[_batch(0)])
    assert only(error).message == "a loader is a function that makes the batches, not a list"
    with trained_by("local", loader=lambda: int([])) as pipeline:
        with pytest.raises(piper.PipeError) as error:
            pipeline.train_loaded(3)
        assert only(error).message.startswith("the loader raised TypeError: ")
        assert "test_loader.py" in only(error).notes[0]
    with trained_by("local", loader=Steps(tmp_path / "notes", 7, lambda step: 1 // 0)) as pipeline:
        with pytest.raises(piper.PipeError) as error:
            list(pipeline.train_loaded())
        assert only(error).message.startswith("the loader raised ZeroDivisionError: ")
        assert "test_loader.py" in only(error).notes[0]
    with trained_by("local", loader=Stream(3)) as pipeline:
        training = pipeline.train_loaded(3)
        next(training)
    with pytest.raises(piper.PipeError, match="the pipeline is closed"):
        next(training)
