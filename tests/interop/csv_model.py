"""The model that PyTorch's runtime trains in parts, and whole in one process; float64, so that tolerances are small."""

from __future__ import annotations

import torch
from torch import nn

WIDTH = 6
ROWS_PER_MICROBATCH = 3


def stage_module(stage: int, stages: int) -> nn.Module:
    """The same parameters wherever it is made; the last stage has an output of its own width."""
    torch.manual_seed(100 + stage)
    last = stage == stages - 1
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 2 if last else WIDTH)).double()


def batch(microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    rows = ROWS_PER_MICROBATCH * microbatches
    inputs = torch.randn(rows, WIDTH, generator=generator, dtype=torch.float64)
    return inputs, torch.randn(rows, 2, generator=generator, dtype=torch.float64)


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output - target).square().mean()


def whole_step(stages: int, microbatches: int) -> tuple[list[float], dict[int, list[torch.Tensor]]]:
    """The loss of every microbatch, and the gradients of the mean loss, without any pipeline."""
    modules = [stage_module(stage, stages) for stage in range(stages)]
    inputs, targets = batch(microbatches)
    output = nn.Sequential(*modules)(inputs)
    loss(output, targets).backward()
    pairs = zip(output.chunk(microbatches), targets.chunk(microbatches), strict=True)
    losses = [loss(part, target).item() for part, target in pairs]
    return losses, {stage: [p.grad for p in module.parameters()] for stage, module in enumerate(modules)}
