"""Every schedule of the library trains as one process does, with evaluations between its steps."""

from __future__ import annotations

import pytest
import torch
from runtime_models import mixed, mixed_batch, sgd
from runtime_reference import EXACT, assert_close, close, operations, rows, trained_whole
from torch import nn

import piper_dsl as piper

pytestmark = pytest.mark.usefixtures("ray_instance")

MSE = nn.functional.mse_loss

SIZES = {name: {"p": 2, "m": 4} for name in piper.library_names()}
SIZES["chimera"] = SIZES["dualpipe"] = {"p": 4, "m": 8}  # with two ranks every rank would hold every stage


def _still(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.0)


def _trains_as_one_process(name: str, target: str) -> None:
    schedule = piper.load(name, **SIZES[name])
    stages = mixed(schedule.stages)
    evaluates = name == "forward_only"
    batches = [mixed_batch(2 * schedule.microbatches, seed) for seed in range(3)]
    losses, state = trained_whole(stages, MSE, _still if evaluates else sgd, batches)
    arguments = {"loss_fn": MSE, "optimizer": None if evaluates else sgd, "target": target}
    with piper.Pipeline(stages, schedule, timeout=60.0, **arguments) as pipeline:
        found = []
        for batch in batches:
            # An evaluation before a step finds the loss of the step.
            assert pipeline.evaluate(*batch) == close(losses[len(found)], EXACT)
            found.append(pipeline.step(*batch))
            assert operations(pipeline) == rows(schedule)
            assert pipeline.held() == [0] * schedule.ranks
        assert found == close(losses, EXACT)
        assert_close(pipeline.state_dict(), state, EXACT)


@pytest.mark.parametrize("name", SIZES)
def test_trains_as_one_process(name: str) -> None:
    _trains_as_one_process(name, "local")


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("target", ["ray-program", "ray-dag"])
def test_trains_as_one_process_on_ray(target: str, name: str, warm: None) -> None:
    _trains_as_one_process(name, target)
