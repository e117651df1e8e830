"""Recomputation, and schedules without a backward."""

from __future__ import annotations

import copy

import pytest
import torch
from runtime_models import WIDTH, Linear, mixed, mixed_batch, sgd
from runtime_reference import EXACT, assert_close, close, operations, rows, whole_gradients, written
from torch import nn

import piper_dsl as piper

MSE = nn.functional.mse_loss
EVALUATION = "ranks 2\nmicrobatches 2\nrank r { F[0:2] }"
TRAINING = "ranks 2\nmicrobatches 2\nrank r { F[0:2] B[0:2] }"


def _dropping() -> list[nn.Module]:
    torch.manual_seed(0)
    return [
        nn.Sequential(nn.Linear(WIDTH, 8), nn.Dropout(0.5), nn.Linear(8, WIDTH)).double(),
        nn.Sequential(nn.Dropout(0.3), nn.Linear(WIDTH, WIDTH)).double(),
    ]


@pytest.mark.parametrize("backward", ["B[i]", "I[i] W[i]"])
def test_recomputing_draws_the_same_random_numbers(backward: str) -> None:
    found = []
    for recompute in ("", "R[i]"):
        # Other microbatches draw between F and R, and what follows must not notice that R drew.
        text = f"ranks 2\nmicrobatches 3\nrank r {{ F[0:3] for i in 0:3 {{ {recompute} {backward} }} }}"
        torch.manual_seed(5)
        batches = [torch.randn(2, 6, WIDTH, dtype=torch.float64).unbind() for _ in range(2)]
        with piper.Pipeline(_dropping(), written(text), loss_fn=MSE) as pipeline:
            torch.manual_seed(7)
            losses = [pipeline.step(*batch) for batch in batches]
            found.append((losses, pipeline.gradients()))
            assert operations(pipeline) == rows(pipeline.schedule)
    (losses, gradients), (again, gradients_again) = found
    assert losses[0] != losses[1]
    assert again == close(losses, EXACT)
    assert_close(gradients_again, gradients, EXACT)


class Halving(nn.Linear):
    """Changes its input in place before it uses it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.mul_(0.5))


@pytest.mark.parametrize("backward", ["B[i]", "R[i] B[i]"])
def test_an_input_that_is_changed_in_place_is_there_as_it_was_for_the_next(backward: str) -> None:
    text = f"ranks 1\nmicrobatches 2\nrank 0 {{ F[0:2] for i in 0:2 {{ {backward} }} }}"
    x, y = torch.randn(2, 6, WIDTH, dtype=torch.float64).unbind()
    torch.manual_seed(0)
    stage, given = Halving(WIDTH, WIDTH).double(), x.clone()
    whole = copy.deepcopy(stage)
    MSE(whole(x.clone()), y).backward()
    with piper.Pipeline([stage], written(text), loss_fn=MSE) as pipeline:
        pipeline.step(given, y)
        assert_close(pipeline.gradients(), {0: {k: p.grad for k, p in whole.named_parameters()}}, EXACT)
    assert torch.equal(given, x)


def test_a_loss_that_is_linear_in_dropped_weights_equals_weights_times_gradients() -> None:
    # Euler: true if, and only if, the masks of F and R are the same. Needs no reference run.
    torch.manual_seed(0)
    stages = [Linear(), nn.Identity()]
    text = "ranks 2\nmicrobatches 3\nrank 0 { F[0:3] for i in 0:3 { R[i] B[i] } }\nrank 1 { F[0:3] B[0:3] }"
    with piper.Pipeline(stages, written(text), loss_fn=lambda found, _: found.mean()) as pipeline:
        x = torch.randn(6, WIDTH, dtype=torch.float64)
        loss = pipeline.step(x, x)
        weights, gradients = pipeline.state_dict()[0]["weight"], pipeline.gradients()[0]["weight"]
    assert loss == close((weights * gradients).sum().item(), EXACT)
    assert abs(loss) > 1e-3


def test_evaluations_leave_the_next_step_alone() -> None:
    # Case B18.
    stages = mixed(2)
    batch = mixed_batch(4, 0)
    losses, gradients = whole_gradients(stages, MSE, [batch])
    before = copy.deepcopy({s: one.state_dict() for s, one in enumerate(stages)})
    with piper.Pipeline(stages, written(EVALUATION), loss_fn=MSE) as pipeline:
        for _ in range(3):
            assert pipeline.step(*batch) == close(losses[0], EXACT)
            assert operations(pipeline) == rows(pipeline.schedule)
            assert pipeline.held() == [0, 0]
        assert pipeline.gradients() == {0: {}, 1: {}}
        assert_close(pipeline.state_dict(), before, 0.0)
    with piper.Pipeline(stages, written(TRAINING), loss_fn=MSE) as pipeline:
        assert pipeline.step(*batch) == close(losses[0], EXACT)
        assert_close(pipeline.gradients(), gradients, EXACT)


def test_gradients_with_and_without_a_momentum_step_between() -> None:
    # An optimizer step clears the gradients of its stage and keeps its own state.
    stages = mixed(2)
    batches = [mixed_batch(4, seed) for seed in range(3)]
    text = "ranks 2\nmicrobatches 2\nrank r { F[0:2] B[0:2] OPT }"
    whole = copy.deepcopy(stages)
    optimizers = [sgd(list(stage.parameters())) for stage in whole]
    for inputs, targets in batches:
        MSE(whole[1](*whole[0](*inputs)), targets).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    with piper.Pipeline(stages, written(text), loss_fn=MSE, optimizer=sgd) as pipeline:
        for batch in batches:
            pipeline.step(*batch)
            assert pipeline.gradients() == {0: {}, 1: {}}
        assert_close(pipeline.state_dict(), {s: one.state_dict() for s, one in enumerate(whole)}, EXACT)
