"""What a backward costs in two halves (I and W), beside the whole (B), on stages of several kinds.

`apart` is what the runtime does; `again` walks the graph once for each half. One thread; the best of some
repetitions, one after the other; times are noise, the ratio to B is the figure.

    python benchmarks/split_backward.py
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from piper_dsl.runtime.halves import Again, Apart, Halves

REPEAT = 7


class Block(nn.Module):
    """A transformer block; input and output of shape (samples, length, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's output."""
        y = self.before(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.layers(self.between(x))


def _convolutions() -> nn.Module:
    layers = [(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()) for _ in range(4)]
    return nn.Sequential(*(layer for row in layers for layer in row))


STAGES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "4 blocks of width 256": (lambda: nn.Sequential(*(Block(256, 4) for _ in range(4))), (4, 64, 256)),
    "2 blocks of width 512": (lambda: nn.Sequential(*(Block(512, 8) for _ in range(2))), (2, 128, 512)),
    "4 convolutions": (_convolutions, (4, 32, 32, 32)),
    "2 layers of width 256": (lambda: nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256)), (16, 256)),
    "64 layers of width 64": (
        lambda: nn.Sequential(*(layer for _ in range(64) for layer in (nn.Linear(64, 64), nn.Tanh()))),
        (16, 64),
    ),
}


def _seconds(module: nn.Module, shape: tuple[int, ...], way: type[Halves] | None) -> tuple[float, float]:
    """Seconds of I and W; of B and nothing, without a way."""
    module.zero_grad(set_to_none=True)
    leaf = torch.randn(shape).requires_grad_()
    output = module(leaf)
    seed = torch.randn_like(output)
    start = time.perf_counter()
    if way is None:
        torch.autograd.backward(output, seed)
        return time.perf_counter() - start, 0.0
    halves = way((output,), (seed,), (leaf,))
    halves.inputs()
    between = time.perf_counter()
    halves.weights(torch.autograd.backward)
    return between - start, time.perf_counter() - between


def main() -> None:
    torch.set_num_threads(1)
    table = Table(title="a backward in two halves")
    for heading in ("stage", "B, ms", "apart: I, ms", "W, ms", "of B", "again: I, ms", "W, ms", "of B"):
        table.add_column(heading, justify="left" if heading == "stage" else "right")
    for name, (make, shape) in STAGES.items():
        torch.manual_seed(0)
        module = make()
        best: dict[type[Halves] | None, tuple[float, float]] = {}
        for _ in range(REPEAT):
            for way in (None, Apart, Again):
                best[way] = min(best.get(way, (math.inf, 0.0)), _seconds(module, shape, way), key=sum)
        whole = sum(best[None])
        row = [f"{whole * 1e3:.2f}"]
        for way in (Apart, Again):
            row += [*(f"{part * 1e3:.2f}" for part in best[way]), f"{sum(best[way]) / whole:.2f}"]
        table.add_row(name, *row)
    Console().print(table)


if __name__ == "__main__":
    main()
