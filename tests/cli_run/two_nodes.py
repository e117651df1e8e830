"""Trains on two raylets of this machine, two CPUs each: from Python on both Ray targets, then by the command line.

Each says of itself that it has a GPU. It has none; who asks for GPUs is refused before anything could use one.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import Any

import ray
import torch
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group_table
from torch import nn

import piper_dsl as piper

WIDE = 320_000
"""With 16 samples an activation of 20 MB, larger than every default buffer."""

RAY_TARGETS = ("ray-program", "ray-dag")


class Here(nn.Linear):
    """A layer that writes down on which node it is."""

    def __init__(self, width: int, more: int) -> None:
        super().__init__(width, more)
        self.register_buffer("node", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if ray.is_initialized() and x.device.type != "meta":
            self.node.fill_(int(ray.get_runtime_context().get_node_id()[:12], 16))
        return super().forward(x)


def _sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 1e-9)


def _pipeline(stages: list[nn.Module], **options: Any) -> piper.Pipeline:
    schedule = piper.load("1f1b", p=len(stages), m=4)
    return piper.Pipeline(stages, schedule, loss_fn=nn.functional.mse_loss, optimizer=_sgd, **options)


def _losses(**options: Any) -> list[float]:
    torch.manual_seed(0)
    inputs, targets = torch.randn(64, 8), torch.randn(64, 1)
    with _pipeline([nn.Linear(8, WIDE), nn.Linear(WIDE, 1)], num_gpus=0, **options) as pipeline:
        return [pipeline.step(inputs, targets) for _ in range(2)]


def _nodes(strategy: str, count: int) -> list[int]:
    """On how many nodes every two neighbours are, of so many ranks."""
    x = torch.randn(4, 3)
    options = {"target": "ray-program", "strategy": strategy, "num_gpus": 0}
    with _pipeline([Here(3, 3) for _ in range(count)], **options) as pipeline:
        pipeline.step(x, x)
        found = [int(state["node"]) for state in pipeline.state_dict().values()]
    assert all(group["state"] == "REMOVED" for group in placement_group_table().values())
    return [len({one, other}) for one, other in pairwise(found)]


def _refusal(count: int, **options: Any) -> str:
    try:
        _pipeline([nn.Linear(3, 3) for _ in range(count)], target="ray-program", **options).close()
    except piper.PipeError as error:
        finding = error.diagnostics[0]
        return f"{finding.code} {finding.message}" + ("\n" + " | ".join(finding.notes) if finding.notes else "")
    return "not refused"


def _say(text: object) -> None:
    sys.stdout.write(f"{text}\n")


def _from_python() -> None:
    wanted = _losses(target="local")
    for target in RAY_TARGETS:
        found = _losses(target=target, strategy="strict-spread")
        difference = max(abs(a - b) for a, b in zip(found, wanted, strict=True))
        _say(f"{target} {'agrees' if difference < 1e-5 else f'is off by {difference}'}")
    _say(_nodes("pack", 4))
    _say(_refusal(3, num_gpus=1))
    with _pipeline([nn.Linear(3, 3)], target="ray-program", num_gpus=1):
        _say(_refusal(2))
    _say(_refusal(3, strategy="strict-spread", num_gpus=0).replace(ray.nodes()[0]["NodeManagerAddress"], "A"))


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=2, num_gpus=1)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        _from_python()
        ray.shutdown()
        small = ("-p", "p=2", "-p", "m=2", "--steps", "2", "--batch", "4", "--target", "ray-program")
        places = ("--num-cpus", "2", "--num-gpus", "0", "--strategy", "strict-spread", "--address", cluster.address)
        command = (sys.executable, "-m", "piper_dsl", "run", "1f1b", *small, *places)
        done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        _say(f"command line: {done.returncode}")
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
