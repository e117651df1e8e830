"""Trains on two raylets of this machine, one CPU each: from Python on both Ray targets, then by the command line."""

from __future__ import annotations

import subprocess
import sys

import ray
import torch
from ray.cluster_utils import Cluster
from torch import nn

import piper_dsl as piper

WIDE = 320_000
"""With 16 samples an activation of 20 MB, larger than every default buffer."""


def _sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 1e-9)


def _losses(target: str) -> list[float]:
    torch.manual_seed(0)
    stages = [nn.Linear(8, WIDE), nn.Linear(WIDE, 1)]
    inputs, targets = torch.randn(64, 8), torch.randn(64, 1)
    schedule = piper.load("1f1b", p=2, m=4)
    arguments = {"loss_fn": nn.functional.mse_loss, "optimizer": _sgd, "target": target}
    with piper.Pipeline(stages, schedule, **arguments) as pipeline:
        return [pipeline.step(inputs, targets) for _ in range(2)]


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        wanted = _losses("local")
        for target in ("ray-program", "ray-dag"):
            difference = max(abs(a - b) for a, b in zip(_losses(target), wanted, strict=True))
            sys.stdout.write(f"{target} {'agrees' if difference < 1e-5 else f'is off by {difference}'}\n")
        ray.shutdown()
        small = ("-p", "p=2", "-p", "m=2", "--steps", "2", "--batch", "4", "--target", "ray-program")
        command = (sys.executable, "-m", "piper_dsl", "run", "1f1b", *small, "--address", cluster.address)
        done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        sys.stdout.write(f"command line: {done.returncode}\n")
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
