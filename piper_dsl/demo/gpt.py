"""A byte-level GPT, cut into stages: about a million parameters."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

__all__ = ["next_byte_loss", "stages"]

VOCABULARY = 256
CONTEXT = 64
WIDTH = 144
HEADS = 4
LAYERS = 4


class Embedding(nn.Module):
    """Bytes and their positions: int64 (batch, time) to float (batch, time, WIDTH)."""

    def __init__(self) -> None:
        super().__init__()
        self.byte = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        embedded: torch.Tensor = self.byte(tokens) + self.position(positions)
        return embedded


class Block(nn.Module):
    """A pre-norm transformer block with causal attention, (batch, time, WIDTH) to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, _ = x.shape
        query, key, value = self.qkv(self.norm1(x)).view(batch, time, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, time, WIDTH))
        result: torch.Tensor = x + self.mlp(self.norm2(x))
        return result


def stages(count: int) -> list[nn.Module]:
    """The model in ``count`` stages: blocks spread evenly, embedding first, output head last."""
    blocks = [Block() for _ in range(max(LAYERS, count))]
    cuts = [len(blocks) * stage // count for stage in range(count + 1)]
    parts: list[list[nn.Module]] = [list(blocks[start:end]) for start, end in pairwise(cuts)]
    parts[0].insert(0, Embedding())
    parts[-1] += [nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)]
    return [nn.Sequential(*part) for part in parts]


def next_byte_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of (batch, time, VOCABULARY) logits, in nats per byte."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
