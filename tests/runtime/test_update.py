"""How a step is made: clipping, accumulation, learning rates, mean and sum losses, random numbers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from runtime_models import WIDTH, Noisy, mixed, mixed_batch, sgd
from runtime_reference import EXACT, assert_close, close, only, written
from torch import nn

import piper_dsl as piper

pytestmark = pytest.mark.usefixtures("warm")

MSE = nn.functional.mse_loss
TARGETS = ["local", "ray-program", "ray-dag"]


class Slope(nn.Module):
    """Adds its one weight times a constant: the gradient of the mean of the output is the constant."""

    def __init__(self, constant: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.constant = constant

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.constant * self.weight


def _plain(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1.0)


@pytest.mark.parametrize("target", TARGETS)
def test_gradients_are_clipped_by_the_norm_over_all_ranks(target: str) -> None:
    # Case F6: norm 3 on rank 0 (stages 0 and 2), 4 on rank 1; together 5, so every gradient is scaled by 0.2.
    constants = (1.8, 2.4, 2.4, 3.2)
    x = torch.zeros(4, WIDTH, dtype=torch.float64)
    arguments = {"loss_fn": lambda found, _: found.mean(), "optimizer": _plain, "max_norm": 1.0, "timeout": 60.0}
    schedule = piper.load("interleaved_1f1b", p=2, m=2)
    with piper.Pipeline([Slope(c) for c in constants], schedule, target=target, **arguments) as pipeline:
        pipeline.step(x, x)
        assert pipeline.last.gradient_norm == close(5.0, EXACT)
        weights = [state["weight"].item() for state in pipeline.state_dict().values()]
        assert weights == close([-0.2 * c for c in constants], 1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_a_rank_without_stages_takes_part_in_the_norm(target: str) -> None:
    text = (
        "ranks 3\nstages 2\nmicrobatches 2\nplace s on s\nrank 0: 0F0 0F1 0B0 0B1 0OPT\nrank 1: 1F0 1B0 1F1 1B1 1OPT\n"
    )
    x = torch.zeros(4, WIDTH, dtype=torch.float64)
    arguments = {"loss_fn": lambda found, _: found.mean(), "optimizer": _plain, "max_norm": 1.0, "timeout": 60.0}
    with piper.Pipeline([Slope(3.0), Slope(4.0)], written(f"{text}rank 2:"), target=target, **arguments) as pipeline:
        pipeline.step(x, x)
        assert pipeline.last.gradient_norm == close(5.0, EXACT)


def test_copies_and_ties_count_once_in_the_norm() -> None:
    schedule = piper.load("chimera", p=4, m=4)
    stages, batch = mixed(4), mixed_batch(8, 0)
    whole = copy.deepcopy(stages)
    values = batch[0]
    for stage in whole:
        values = stage(*values)
    MSE(values, batch[1]).backward()
    norm = torch.nn.utils.clip_grad_norm_([p for s in whole for p in s.parameters()], 0.01)
    for stage in whole:
        sgd(list(stage.parameters())).step()
    for target in ("local", "ray-program"):
        arguments = {"loss_fn": MSE, "optimizer": sgd, "max_norm": 0.01, "timeout": 60.0}
        with piper.Pipeline(stages, schedule, target=target, **arguments) as pipeline:
            pipeline.step(*batch)
            assert pipeline.last.gradient_norm == close(norm.item(), EXACT)
            assert_close(pipeline.state_dict(), {s: one.state_dict() for s, one in enumerate(whole)}, EXACT)


def _decaying(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)


@pytest.mark.parametrize("target", TARGETS)
def test_gradients_of_several_batches_and_a_learning_rate_that_decays(target: str) -> None:
    # Case F4: the gradient of two steps of four microbatches is the mean over all eight.
    stages = mixed(2)
    batches = [mixed_batch(8, seed) for seed in range(6)]
    whole = copy.deepcopy(stages)
    optimizers = [sgd(list(stage.parameters())) for stage in whole]
    schedulers = [_decaying(optimizer) for optimizer in optimizers]
    for number, (inputs, targets) in enumerate(batches):
        (MSE(whole[1](*whole[0](*inputs)), targets) / 2).backward()
        if number % 2:
            for optimizer, scheduler in zip(optimizers, schedulers, strict=True):
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
    wanted = {s: one.state_dict() for s, one in enumerate(whole)}
    arguments = {"loss_fn": MSE, "optimizer": sgd, "scheduler": _decaying, "accumulate": 2, "timeout": 60.0}
    with piper.Pipeline(stages, piper.load("zb_h1", p=2, m=4), target=target, **arguments) as pipeline:
        for number, batch in enumerate(batches):
            before = pipeline.state_dict() if number % 2 == 0 and number else None
            pipeline.step(*batch)
            if before:
                assert_close(pipeline.state_dict(), before, 0.0)
            assert bool(pipeline.gradients()[0]) == (number % 2 == 0)
        assert_close(pipeline.state_dict(), wanted, EXACT)


@pytest.mark.parametrize("p", [1, 4])
def test_a_sum_over_samples(p: int) -> None:
    # Case F5: the same gradients as one process with one summed loss.
    stages, (inputs, targets) = mixed(4), mixed_batch(8, 0)

    def summed(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return MSE(found, wanted, reduction="sum")

    whole = copy.deepcopy(stages)
    values: Any = inputs
    for stage in whole:
        values = stage(*values)
    loss = summed(values, targets)
    loss.backward()
    text = "param p = 4\nranks p\nstages 4\nmicrobatches 4\nrank r { for k in 0:4 // p { F[0:4]@stage(k) } "
    text += "for k in 0:4 // p { B[0:4]@stage(4 // p - 1 - k) } }"
    with piper.Pipeline(stages, written(text, p=p), loss_fn=summed, reduction="sum") as pipeline:
        assert pipeline.step(inputs, targets) == close(loss.item(), EXACT)
        wanted = {s: {n: q.grad for n, q in one.named_parameters()} for s, one in enumerate(whole)}
        assert_close(pipeline.gradients(), wanted, EXACT)


def _noisy_losses(name: str, target: str, **settings: Any) -> list[float]:
    torch.manual_seed(0)
    stages = [Noisy() for _ in range(4)]
    batches = [torch.randn(2, 8, WIDTH).unbind() for _ in range(2)]
    torch.manual_seed(len(name))  # what the caller draws makes no difference
    ranks = 2 if "interleaved" in name or name == "zb_v" else 4
    schedule = piper.load(name, p=ranks, m=4)
    arguments = {"loss_fn": MSE, "optimizer": sgd, "timeout": 60.0, **settings}
    with piper.Pipeline(stages, schedule, target=target, **arguments) as pipeline:
        before = torch.get_rng_state()
        losses = [pipeline.step(*batch) for batch in [*batches, batches[1]]]
        # Nor do the steps change what the caller draws.
        assert torch.equal(torch.get_rng_state(), before)
    return losses


def test_a_microbatch_meets_the_same_random_numbers_under_every_schedule_and_target() -> None:
    wanted = _noisy_losses("gpipe", "local")
    runs = [("1f1b", "ray-program"), ("zb_v", "local"), ("chimera", "ray-program"), ("interleaved_1f1b", "ray-dag")]
    for name, target in runs:
        assert _noisy_losses(name, target) == close(wanted, 1e-6), (name, target)
    assert _noisy_losses("gpipe", "local", seed=1) != wanted
    # The same batch once more, with the next step's numbers.
    assert wanted[1] != wanted[2]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"accumulate": 0}, "cannot accumulate over 0 steps"),
        ({"max_norm": 0.0}, "cannot be clipped to a norm of 0"),
        ({"seed": 2**63}, "a seed of 9223372036854775808 is no whole number of 64 bits"),
        ({"seed": 0.5}, "a seed of 0.5 is no whole number of 64 bits"),
        ({"reduction": "median"}, "no reduction `median`"),
        ({"optimizer": None, "max_norm": 1.0}, "there is none"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], words: str) -> None:
    schedule = written("ranks 1\nmicrobatches 1\nrank 0: F0 B0" + (" OPT" if "optimizer" not in settings else ""))
    arguments = {"loss_fn": MSE, "optimizer": sgd, **settings}
    with pytest.raises(piper.PipeError) as error:
        piper.Pipeline([nn.Linear(WIDTH, WIDTH)], schedule, **arguments)
    assert words in only(error).message
