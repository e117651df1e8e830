"""Several steps in one call of the ranks: losses, checkpoints and failures are those of steps, on every target."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from runtime_models import HOT, WIDTH, FaultyWeight, RunningMean, sgd
from runtime_reference import assert_close, only
from test_drain import Stubborn
from torch import nn

import piper_dsl as piper
from piper_dsl.runtime.failure import OperationFailed

pytestmark = pytest.mark.usefixtures("warm")

TARGETS = ["local", "ray-dag", "ray-program"]
Batch = tuple[torch.Tensor, torch.Tensor]
MSE = nn.functional.mse_loss


def _batch(seed: int, hot: bool = False) -> Batch:
    x, y = torch.rand(2, 4, WIDTH, generator=torch.Generator().manual_seed(seed))
    return (x + 2 * HOT if hot else x), y


def _pipeline(target: str, **arguments: object) -> piper.Pipeline:
    torch.manual_seed(0)
    stages = [FaultyWeight(), RunningMean()]
    given = {"loss_fn": MSE, "optimizer": sgd, "timeout": 60.0, "target": target, **arguments}
    return piper.Pipeline(stages, piper.load("1f1b", p=2, m=2), **given)


@pytest.mark.parametrize("target", TARGETS)
def test_steps_of_one_call_are_steps_and_one_that_fails_leaves_no_trace(target: str) -> None:
    batches = [_batch(seed) for seed in range(7)]
    with _pipeline("local", accumulate=2) as undisturbed:
        losses = [undisturbed.step(*batch) for batch in batches]
        wanted = undisturbed.state_dict()
    with _pipeline(target, accumulate=2) as pipeline:
        assert list(pipeline.train(batches[:3], steps_per_call=2)) == losses[:3]
        assert pipeline.last is not None
        assert pipeline.last.loss == losses[2]
        assert pipeline.last.makespan > 0
        found = []
        with pytest.raises(piper.PipeError) as error:
            found += pipeline.train([batches[3], _batch(9, hot=True), batches[4]], steps_per_call=3)
        assert only(error).message.startswith("rank 0: stage 0, backward (B) of microbatch 0: ValueError:")
        assert isinstance(error.value.__cause__, OperationFailed)
        assert pipeline.held() == [0, 0]
        # The loss of the step before the one that failed had come; what comes after it was not trained.
        assert pipeline.last.loss == losses[3]
        assert list(pipeline.train(batches[4:], steps_per_call=8)) == losses[4:]
        assert_close(pipeline.state_dict(), wanted, 0.0)


@pytest.mark.parametrize("target", TARGETS)
def test_an_optimizer_that_raises_in_the_middle_of_a_call_stops_the_pipeline(target: str) -> None:
    stages = [nn.Tanh(), nn.Linear(WIDTH, WIDTH)]
    arguments = {"loss_fn": MSE, "optimizer": Stubborn, "target": target, "timeout": 60.0}
    with piper.Pipeline(stages, piper.load("1f1b", p=2, m=2), **arguments) as pipeline:
        with pytest.raises(piper.PipeError) as error:
            list(pipeline.train([_batch(0), _batch(1), _batch(2)], steps_per_call=3))
        assert only(error).message == "rank 1: stage 1, optimizer step (OPT): ArithmeticError: no step today"
        with pytest.raises(piper.PipeError) as error:
            list(pipeline.train([_batch(0)]))
        assert only(error).code == "P712"


def test_checkpoints_are_written_when_they_are_due_whatever_a_call_holds(tmp_path: Path) -> None:
    with _pipeline("local", checkpoints=tmp_path, checkpoint_every=3) as pipeline:
        losses = list(pipeline.train(map(_batch, range(8)), steps_per_call=5))
        assert len(losses) == 8
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-3", "step-6"]
    with _pipeline("local", checkpoints=tmp_path, checkpoint_every=3) as pipeline:
        assert pipeline.resume() == 6
        assert list(pipeline.train(map(_batch, (6, 7)), steps_per_call=5)) == losses[6:]


def test_what_the_data_raises_comes_after_the_losses_of_what_came_before() -> None:
    def ends() -> Iterator[Batch]:
        yield _batch(0)
        raise OSError("the disk is gone")

    found: list[float] = []
    with _pipeline("local") as pipeline:
        with pytest.raises(OSError, match="the disk is gone"):
            found.extend(pipeline.train(ends(), steps_per_call=4))
        assert pipeline.last is not None
        first = pipeline.last.loss
        with pytest.raises(piper.PipeError) as error:
            list(pipeline.train([_batch(1), torch.rand(4, WIDTH)], steps_per_call=4))  # type: ignore[list-item]
        assert only(error).message.endswith("(inputs,) where there are no targets, not a Tensor")
        assert list(pipeline.train([])) == []
        with pytest.raises(piper.PipeError, match="steps_per_call must be at least 1, not 0"):
            pipeline.train([], steps_per_call=0)
    with _pipeline("local") as pipeline:
        assert pipeline.step(*_batch(0)) == first
