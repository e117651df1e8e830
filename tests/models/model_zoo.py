"""Whole models with all that a cut must carry; float64, so that differences are rounding alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import piper_dsl as piper

WIDTH = 6
WORDS = 11


class Block(nn.Module):
    """A residual layer under a mask that comes from the first stage."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 9), nn.Linear(9, WIDTH)
        self.drop = nn.Dropout(drop)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.outer(torch.tanh(self.inner(self.norm(x))))) * mask


class Reader(nn.Module):
    """Words to words: a mask and a skip from the embedding cross every boundary, sizes are computed with."""

    def __init__(self, blocks: int = 4, drop: float = 0.0, tied: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block(drop) for _ in range(blocks))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.unused = nn.Linear(2, 2)
        self.register_buffer("scale", torch.tensor(0.7))
        self.register_buffer("passing", torch.tensor(1.5), persistent=False)
        if tied:
            self.head.weight = self.embed.weight
        self.double()

    def forward(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        start = x = self.embed(words)
        mask = (words > 2).unsqueeze(-1)
        count = words.shape[0] * words.shape[1]
        for number, block in enumerate(self.blocks):
            x = block(x, mask)
            if number in (0, 2):
                piper.stage_boundary()
        places = torch.arange(words.shape[1], dtype=x.dtype).unsqueeze(-1)
        flat = (x + places).view(count, -1) * self.passing
        return self.head(flat.view(words.shape[0], -1, WIDTH) + start * self.scale), x.mean(dim=(1, 2))


def words(size: int, seed: int = 0) -> torch.Tensor:
    """Inputs of :class:`Reader`, int64 (size, 5)."""
    return torch.randint(WORDS, (size, 5), generator=torch.Generator().manual_seed(seed))


def reader_loss(logits: torch.Tensor, means: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The mean over words, plus a term of the second output."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten()) + means.square().mean()


def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def chained(stages: list[nn.Module], *values: Any) -> tuple[torch.Tensor, ...]:
    """What the stages return one after another."""
    for stage in stages:
        found = stage(*values)
        values = found if isinstance(found, tuple) else (found,)
    return values
