"""A pipeline whose steps depend on all that a checkpoint has to hold, and one whose ranks can get out of step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from runtime_models import WIDTH, sgd
from torch import nn

import piper_dsl as piper

TARGETS = ["local", "ray-program"]
BATCHES = [torch.randn(2, 8, WIDTH, generator=torch.Generator().manual_seed(seed)).unbind() for seed in range(7)]


class Stage(nn.Module):
    """Everything that a step may depend on: weights, a buffer, dropout."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.extra = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(self.norm(self.linear(hidden)), 0.3, self.training)


def decaying(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)


def saving_pipeline(folder: Path | None, target: str = "local", **changes: Any) -> piper.Pipeline:
    torch.manual_seed(0)
    arguments = {
        "schedule": piper.load("interleaved_1f1b", p=2, m=4),
        "stages": [Stage(changes.pop("width", WIDTH)) for _ in range(4)],
        "loss_fn": nn.functional.mse_loss,
        "optimizer": sgd,
        "scheduler": decaying,
        "accumulate": 2,
        "checkpoints": folder,
        "target": target,
        "timeout": 60.0,
        **changes,
    }
    return piper.Pipeline(arguments.pop("stages"), arguments.pop("schedule"), **arguments)


def failing_later(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Steps the parameters of one stage, and fails on those of the next."""
    optimizer = sgd(parameters)
    if parameters[0].shape[0] == WIDTH + 1:
        optimizer.step = lambda: 1 / 0
    return optimizer


class Widening(nn.Linear):
    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH + 1)


def breakable(folder: Path) -> piper.Pipeline:
    stages = [*(Stage() for _ in range(3)), Widening()]
    return saving_pipeline(folder, stages=stages, optimizer=failing_later, scheduler=None, accumulate=1)


def _break(pipeline: piper.Pipeline) -> None:
    """The ranks get out of step: the optimizer of the last stage raises."""
    x, y = BATCHES[0]
    with pytest.raises(piper.PipeError, match="ZeroDivisionError"):
        pipeline.step(x, nn.functional.pad(y, (0, 1)))


ENDINGS = {
    "stopped": (_break, "the pipeline stopped: rank 1: stage 3, optimizer step (OPT)"),
    "closed": (piper.Pipeline.close, "the pipeline is closed"),
}
