"""Stages that do not fit are found before the first step, and those that do are never refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from runtime_models import WIDTH, sgd
from runtime_reference import only, written
from torch import nn

import piper_dsl as piper
from piper_dsl.lower import lower
from piper_dsl.runtime.arity import wrong_count
from piper_dsl.runtime.batch import split_batch
from piper_dsl.runtime.launch import rank_specs
from piper_dsl.runtime.settings import Settings
from piper_dsl.runtime.shapes import batch_bytes, largest_message

TEXT = "ranks 2\nmicrobatches 2\nrank r { F[0:2] B[0:2] OPT }"
WIDE = 7
SAMPLES = 4


class Calls(nn.Module):
    """Counts its forwards, of whatever copy."""

    count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.device.type != "meta":
            Calls.count += 1
        return x


class Looks(nn.Module):
    """Decides by a value, which meta tensors do not have; refuses what has no positive one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not (x > 0).any():
            raise RuntimeError(f"all {x.shape[0]} samples are without a positive value")
        return self.linear(x)


class Forgotten(nn.Module):
    """A tensor that is neither parameter nor buffer stays on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.mask = torch.ones(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.mask


def _message(stages: list[nn.Module], loss: Any = nn.functional.mse_loss, target: int = WIDTH) -> str:
    Calls.count = 0
    with (
        piper.Pipeline(stages, written(TEXT), loss_fn=loss, optimizer=sgd) as pipeline,
        pytest.raises(piper.PipeError) as error,
    ):
        pipeline.step(torch.randn(2 * SAMPLES, WIDTH), torch.randn(2 * SAMPLES, target))
    assert Calls.count == 0
    return f"{only(error).code}: {only(error).message}"


def _first() -> nn.Module:
    return nn.Sequential(Calls(), nn.Linear(WIDTH, WIDTH))


@pytest.mark.parametrize(
    "module",
    [nn.Linear(WIDE, 2), nn.Conv1d(WIDE, 2, 1), nn.LayerNorm(WIDE), nn.BatchNorm1d(WIDE), nn.Unflatten(1, (2, WIDE))],
)
def test_a_stage_that_cannot_take_what_it_gets_is_named_with_the_shape(module: nn.Module) -> None:
    found = _message([_first(), module])
    assert found.startswith(f"P705: stage 1 cannot take what stage 0 returned torch.float32 ({SAMPLES}, {WIDTH}): ")


def test_the_first_stage_and_the_loss_are_named_too() -> None:
    assert "stage 0 cannot take what the batch has" in _message([nn.Linear(WIDE, WIDTH), nn.Tanh()])
    found = _message([_first(), nn.Tanh()], target=WIDE)
    assert found.startswith("P705: the loss of stage 1 cannot take torch.float32")


class InPlace(nn.Module):
    """Changes what it is given, which autograd forbids of a tensor that needs a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.mul_(2))


class Two(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x * mask


def test_what_autograd_forbids_is_found_where_an_input_needs_a_gradient_and_only_there() -> None:
    found = _message([_first(), InPlace()])
    assert found.startswith("P705: stage 1 cannot take what stage 0 returned torch.float32")
    assert "a leaf Variable that requires grad is being used in an in-place operation" in found
    x = torch.randn(2 * SAMPLES, WIDTH)
    stages = [InPlace(), nn.Linear(WIDTH, WIDTH)]
    with piper.Pipeline(stages, written(TEXT), loss_fn=nn.functional.mse_loss, optimizer=sgd) as pipeline:
        assert pipeline.step(x, x) > 0
    # Nor where nothing is trained.
    with piper.Pipeline([nn.Linear(WIDTH, WIDTH), InPlace()], written(TEXT.replace("B[0:2] OPT", ""))) as pipeline:
        pipeline.step(x)


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([Two(), nn.Tanh()], "P705: stage 0: its forward takes 2 tensors (x, mask), but the batch has 1"),
        (
            [nn.Linear(WIDTH, WIDTH), Two()],
            "P705: stage 1: its forward takes 2 tensors (x, mask), but stage 0 returned 1",
        ),
    ],
)
def test_a_wrong_number_of_tensors_is_told_with_the_stage(stages: list[nn.Module], said: str) -> None:
    assert _message(stages) == said


class Native(nn.Module):
    """Its forward is not written in Python, and does not say what it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.forward = getattr


def test_a_forward_that_does_not_say_what_it_takes_keeps_its_own_error() -> None:
    assert wrong_count(Native(), 1, (0,)) is None
    found = _message([nn.Linear(WIDTH, WIDTH), Native()])
    assert found.startswith("P705: stage 1 cannot take what stage 0 returned torch.float32 (4, 3): TypeError: ")


def test_who_only_evaluates_is_judged_in_that_mode() -> None:
    # In training a norm over a batch of one is an error.
    stages = [nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)]
    x = torch.randn(2, WIDTH)
    with piper.Pipeline(stages, written(TEXT), loss_fn=nn.functional.mse_loss, optimizer=sgd) as pipeline:
        assert pipeline.evaluate(x, x) > 0


@pytest.mark.parametrize("module", [Looks, Forgotten])
def test_what_does_not_run_without_data_is_left_to_the_first_step(module: type[nn.Module]) -> None:
    torch.manual_seed(0)
    stages, x = [module(), nn.Linear(WIDTH, WIDTH)], torch.ones(2 * SAMPLES, WIDTH)
    state = torch.get_rng_state()
    with piper.Pipeline(stages, written(TEXT), loss_fn=nn.functional.mse_loss, optimizer=sgd) as pipeline:
        assert pipeline.step(x, x) > 0
    assert torch.equal(torch.get_rng_state(), state)
    stages[1] = nn.Linear(WIDE, WIDTH)
    with (
        piper.Pipeline(stages, written(TEXT), loss_fn=nn.functional.mse_loss, optimizer=sgd) as pipeline,
        pytest.raises(piper.PipeError) as error,
    ):
        pipeline.step(x, x)
    assert only(error).code == "P710"
    assert "rank 1: stage 1, forward (F) of microbatch 0" in only(error).message


@pytest.mark.parametrize(("middle", "nbytes"), [(nn.Linear(WIDE, 2), SAMPLES * WIDE * 4), (Looks(), None)])
def test_the_largest_message_is_known_before_any_is_sent(middle: nn.Module, nbytes: int | None) -> None:
    schedule = written("ranks 3\nmicrobatches 2\nrank r { F[0:2] B[0:2] }")
    stages = [nn.Linear(WIDTH, WIDE), middle, nn.Linear(2, 9)]
    specs = rank_specs(stages, schedule, lower(schedule), None, None, Settings())
    x = torch.zeros(2 * SAMPLES, WIDTH)
    batches = split_batch(0, x, None, 2, schedule.graph, schedule.placement)
    assert largest_message(specs, batches) == nbytes
    assert batch_bytes(batches) == x.nbytes
