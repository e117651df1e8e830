"""What it saves that ranks draw their batches by themselves: steps of target ray-program, fed by the driver and not.

The model is next to nothing, so a step is the making of a batch and its way to the ranks. Of several rounds, fed and
loaded in turn, the best mean of a few steps counts: other work on the machine only adds.

    python benchmarks/loading.py                  # batches of 0.1, 1 and 16 MB
    python benchmarks/loading.py --size 4 --rounds 5
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import ray
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import piper_dsl as piper

SAMPLES, WIDTH = 64, 16
STEPS, WARM_UP = 16, 4
COUNTED = 4
"""Steps of a mean."""


@dataclass(frozen=True)
class Batches:
    """Inputs of so many MB and small targets, by step; also what makes them."""

    size: float

    def __call__(self) -> Batches:
        return self

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = int(self.size * 1e6 / 4 / SAMPLES)
        x = torch.empty(SAMPLES, numbers).uniform_(generator=torch.Generator().manual_seed(step))
        return x, x[:, :WIDTH].clone()


class First(nn.Linear):
    """Looks at the beginning of every sample."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x[:, :WIDTH])


def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)


def seconds(batches: Batches, loaded: bool) -> float:
    """The best mean of a step."""
    torch.manual_seed(0)
    stages = [First(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)]
    arguments = {"loss_fn": nn.functional.mse_loss, "optimizer": sgd, "target": "ray-program", "loader": batches}
    with piper.Pipeline(stages, piper.load("1f1b", p=2, m=4), **arguments) as pipeline:
        fed = (batches[step] for step in range(STEPS))
        ends = list(_ends(pipeline.train_loaded() if loaded else pipeline.train(fed)))
    return min(last - first for first, last in pairwise(ends[WARM_UP - 1 :: COUNTED])) / COUNTED


def _ends(training: Iterator[float]) -> Iterator[float]:
    for _ in training:
        yield time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", action="append", type=float, help="MB of a batch; may be given several times")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    table = Table(title="a step of ray-program")
    for heading in ("MB a batch", "fed, ms", "loaded in ranks, ms", "ratio"):
        table.add_column(heading, justify="right")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    for size in chosen.size or (0.1, 1.0, 16.0):
        rounds = [[seconds(Batches(size), loaded) for loaded in (False, True)] for _ in range(chosen.rounds)]
        fed, loaded = (min(column) for column in zip(*rounds, strict=True))
        table.add_row(f"{size:g}", f"{fed * 1e3:.1f}", f"{loaded * 1e3:.1f}", f"{loaded / fed:.2f}")
    ray.shutdown()
    Console().print(table)


if __name__ == "__main__":
    main()
