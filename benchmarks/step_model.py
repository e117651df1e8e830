"""The model that all systems of `step_time.py` train: small linear stages, about 0.1 ms an operation."""

from __future__ import annotations

import torch
from torch import nn

WIDTH = 256
SAMPLES = 16
"""Per microbatch."""

loss = nn.functional.mse_loss


def stages(count: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)) for _ in range(count)]


def batch(microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(2, microbatches * SAMPLES, WIDTH, generator=generator)
    return x, y


def batches(microbatches: int, steps: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The same for every step."""
    return [batch(microbatches)] * steps


def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)
