"""An operation that raises leaves no trace, on every target: no rank steps, and the next step is what it would be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from runtime_cases import REDUCED
from runtime_models import HOT, WIDTH, Dense, Faulty, FaultyWeight, RunningMean, first_and_last, sgd
from runtime_reference import EXACT, assert_close, close, only, operations, rows, written
from torch import nn

import piper_dsl as piper

pytestmark = pytest.mark.usefixtures("warm")

TARGETS = ["local", "ray-dag", "ray-program"]
Batch = tuple[torch.Tensor, torch.Tensor]

EARLY = """
ranks 2
stages 4
microbatches 2
rank 0: 0F0 0F1 2F0 2F1 2B0 2B1 2OPT 0B0 0B1 0OPT
rank 1: 1F0 1F1 3F0 3F1 3B0 3B1 3OPT 1B0 1B1 1OPT
"""
"""Stages 2 and 3 meet their OPT before stages 0 and 1 have run a backward."""

GRADIENTS = EARLY.replace("2OPT", "").replace("3OPT", "").replace("0OPT", "").replace("1OPT", "")


def _batch(seed: int, hot: int | None = None) -> Batch:
    """Four samples for two microbatches, one of which may be hot."""
    x, y = torch.rand(2, 4, WIDTH, generator=torch.Generator().manual_seed(seed))
    if hot is not None:
        x[2 * hot : 2 * hot + 2] = 2 * HOT
    return x, y


def _stages() -> list[nn.Module]:
    """Stage 0 raises in its backward, stage 1 in its forward if told to; stages 1 to 3 keep a running mean."""
    torch.manual_seed(0)
    return [FaultyWeight(), RunningMean(), RunningMean(), RunningMean()]


@pytest.mark.parametrize("target", TARGETS)
def test_no_rank_steps_although_some_met_their_opt_and_the_next_step_is_exact(target: str) -> None:
    arguments = {"loss_fn": first_and_last, "optimizer": sgd}
    with piper.Pipeline(_stages(), written(EARLY), **arguments) as undisturbed:
        losses = [undisturbed.step(*_batch(seed)) for seed in (0, 1, 2)]
        wanted = undisturbed.state_dict()
    with piper.Pipeline(_stages(), written(EARLY), target=target, timeout=60.0, **arguments) as pipeline:
        found = [pipeline.step(*_batch(0))]
        before = pipeline.state_dict()
        for hot in (0, 1):
            with pytest.raises(piper.PipeError) as error:
                pipeline.step(*_batch(9, hot))
            message = f"rank 0: stage 0, backward (B) of microbatch {hot}: ValueError: the weight gradient is too hot"
            assert (only(error).code, only(error).message) == ("P710", message)
            assert any("runtime_models.py" in note for note in only(error).notes)
            # Neither parameters nor buffers nor gradients tell of it.
            assert_close(pipeline.state_dict(), before, 0.0)
            assert pipeline.gradients() == {stage: {} for stage in range(4)}
            assert pipeline.held() == [0, 0]
        found += [pipeline.step(*_batch(seed)) for seed in (1, 2)]
        assert found == losses
        assert_close(pipeline.state_dict(), wanted, 0.0)
        assert operations(pipeline) == rows(pipeline.schedule)


@pytest.mark.parametrize("target", TARGETS)
def test_gradients_found_before_a_step_that_failed_are_still_there(target: str) -> None:
    with piper.Pipeline(_stages(), written(GRADIENTS), loss_fn=first_and_last) as undisturbed:
        for seed in (0, 1):
            undisturbed.step(*_batch(seed))
        wanted = undisturbed.gradients()
    stages = written(GRADIENTS)
    with piper.Pipeline(_stages(), stages, loss_fn=first_and_last, target=target, timeout=60.0) as pipeline:
        pipeline.step(*_batch(0))
        with pytest.raises(piper.PipeError, match="too hot"):
            pipeline.step(*_batch(9, hot=1))
        pipeline.step(*_batch(1))
        assert_close(pipeline.gradients(), wanted, 0.0)


@pytest.mark.parametrize("target", TARGETS)
def test_the_first_step_may_fail_too(target: str) -> None:
    torch.manual_seed(0)
    stages = [nn.Identity(), Faulty("raise")]
    arguments = {"loss_fn": first_and_last, "optimizer": sgd}
    schedule = piper.load("zb_h1", p=2, m=2)
    with piper.Pipeline(stages, schedule, **arguments) as undisturbed:
        loss = undisturbed.step(*_batch(1))
    with piper.Pipeline(stages, schedule, target=target, timeout=60.0, **arguments) as pipeline:
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(*_batch(0, hot=1))
        message = "rank 1: stage 1, forward (F) of microbatch 1: ValueError: too hot to handle"
        assert only(error).message == message
        assert pipeline.step(*_batch(1)) == loss


class Stubborn(torch.optim.SGD):
    """An optimizer that raises."""

    def step(self, closure: None = None) -> None:
        raise ArithmeticError("no step today")


@pytest.mark.parametrize("target", TARGETS)
def test_an_optimizer_that_raises_stops_the_pipeline(target: str) -> None:
    # Others may have stepped: going on would train stages that are out of step.
    stages = [nn.Tanh(), nn.Linear(WIDTH, WIDTH)]
    schedule = piper.load("1f1b", p=2, m=2)
    arguments = {"loss_fn": nn.functional.mse_loss, "optimizer": Stubborn, "target": target, "timeout": 60.0}
    with piper.Pipeline(stages, schedule, **arguments) as pipeline:
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(*_batch(0))
        message = "rank 1: stage 1, optimizer step (OPT): ArithmeticError: no step today"
        assert (only(error).code, only(error).message) == ("P710", message)
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(*_batch(0))
        assert only(error).code == "P712"
        assert message in only(error).message
        assert only(error).help == "make a new one"


class Full(RunningMean):
    """Has no memory left where its third step begins."""

    begun = 0

    def buffers(self, recurse: bool = True) -> Iterator[torch.Tensor]:
        self.begun += sys._getframe(1).f_code.co_name == "begin"
        if self.begun == 3:
            self.begun += 1
            raise MemoryError("no room")
        return super().buffers(recurse)


@pytest.mark.parametrize("target", TARGETS)
def test_a_step_that_a_rank_cannot_begin_leaves_no_trace(target: str) -> None:
    # Optimizers step in every second step, the fourth among them; rank 1 of each replica cannot begin the third.
    arguments = {"loss_fn": first_and_last, "optimizer": sgd, "accumulate": 2, "replicas": 2, "timeout": 60.0}

    def pipeline_of(second: nn.Module, target: str) -> piper.Pipeline:
        torch.manual_seed(0)
        stages = [Dense().double(), second.double(), Dense().double(), Dense().double()]
        stages[1].load_state_dict(Dense().double().state_dict(), strict=False)
        return piper.Pipeline(stages, written(REDUCED), target=target, **arguments)

    with pipeline_of(RunningMean(), "local") as undisturbed:
        losses = [undisturbed.step(*_whole_batch(seed)) for seed in range(4)]
        wanted = undisturbed.state_dict()
    with pipeline_of(Full(), target) as pipeline:
        found = [pipeline.step(*_whole_batch(seed)) for seed in (0, 1)]
        before = pipeline.state_dict()
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(*_whole_batch(9))
        assert only(error).message == "rank 1: stage 1, forward (F) of microbatch 0: MemoryError: no room"
        assert_close(pipeline.state_dict(), before, 0.0)
        found += [pipeline.step(*_whole_batch(seed)) for seed in (2, 3)]
        assert found == close(losses, EXACT)
        assert_close(pipeline.state_dict(), wanted, EXACT)
        assert pipeline.held() == [0] * 4


def _smooth() -> list[nn.Module]:
    torch.manual_seed(0)
    return [stage.double() for stage in (FaultyWeight(), Dense(), Dense(), Dense())]


def _whole_batch(seed: int, hot: int | None = None) -> Batch:
    """Eight samples for four microbatches, one of which may be hot."""
    x, y = torch.rand(2, 8, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if hot is not None:
        x[2 * hot : 2 * hot + 2] = 2 * HOT
    return x, y


def _trained_whole(stages: list[nn.Module]) -> tuple[list[float], Any, float]:
    """Batches 0 and 1 together, clipped, then 2 and 3: every loss, the weights, and the last norm."""
    optimizers = [sgd(list(stage.parameters())) for stage in stages]
    losses: list[float] = []
    for seeds in ((0, 1), (2, 3)):
        for seed in seeds:
            hidden, target = _whole_batch(seed)
            hidden = stages[0](hidden)
            for stage in stages[1:]:
                (hidden,) = stage(hidden)
            loss = nn.functional.mse_loss(hidden, target)
            losses.append(loss.item())
            (loss / 2).backward()
        norm = nn.utils.clip_grad_norm_([p for stage in stages for p in stage.parameters()], 0.05)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return losses, {s: stage.state_dict() for s, stage in enumerate(stages)}, norm.item()


@pytest.mark.parametrize("target", TARGETS)
def test_a_failure_in_one_replica_is_one_of_all(target: str) -> None:
    # Stage 0 raises in its backward, when stages 2 and 3 are being summed over their replicas.
    losses, state, norm = _trained_whole(_smooth())
    arguments = {"loss_fn": first_and_last, "optimizer": sgd, "accumulate": 2, "max_norm": 0.05, "timeout": 60.0}
    with piper.Pipeline(_smooth(), written(REDUCED), target=target, replicas=2, **arguments) as pipeline:
        found = []
        for seed in range(4):
            # Microbatches 0 and 1 are those of the first replica, 2 and 3 of the second.
            for hot in (1, 2) if seed else ():
                before = pipeline.state_dict(), pipeline.gradients()
                with pytest.raises(piper.PipeError, match=f"rank {hot // 2 * 2}: stage 0, .* of microbatch {hot}: "):
                    pipeline.step(*_whole_batch(9, hot))
                assert_close(pipeline.state_dict(), before[0], 0.0)
                assert_close(pipeline.gradients(), before[1], 0.0)
            found.append(pipeline.step(*_whole_batch(seed)))
        assert found == close(losses, EXACT)
        assert pipeline.last.gradient_norm == close(norm, EXACT)
        assert_close(pipeline.state_dict(), state, EXACT)
        assert pipeline.held() == [0] * 4
        assert operations(pipeline) == rows(pipeline.schedule)
