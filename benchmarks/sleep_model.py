"""Stages that sleep: they take the same time on every machine, and need no cores."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

FORWARD, BACKWARD = 0.02, 0.04
"""Seconds. Under 10 ms the overshoot of a sleep, 0.1 to 0.2 ms, would show."""

NAPS: list[tuple[float, float]] = []
"""Start and end of every sleep of this process, on a clock that all processes of the machine share."""


def _nap(seconds: float) -> None:
    start = time.monotonic()
    time.sleep(seconds)
    NAPS.append((start, time.monotonic()))


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        _nap(FORWARD)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        _nap(BACKWARD)
        return gradients[0].clone()


class Sleeper(nn.Module):
    """A stage that takes its time and computes next to nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The input, later; shape (samples, features)."""
        return _Sleep.apply(x * self.scale)


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.0)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    """An optimizer that changes nothing."""
    return torch.optim.SGD(parameters, 0.0)
