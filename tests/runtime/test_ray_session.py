"""Ray that is shut down under a pipeline, by the program itself: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import ray
import torch
from torch import nn
import piper_dsl as piper
from runtime_models import WIDTH, sgd

stages, schedule = [nn.Linear(WIDTH, WIDTH) for _ in range(2)], piper.load("1f1b", p=2, m=4)
x = torch.rand(8, WIDTH)
with piper.Pipeline(stages, schedule, loss_fn=nn.functional.mse_loss, optimizer=sgd, target="TARGET") as pipeline:
    pipeline.step(x, x)
    ray.shutdown()
    for ask in (pipeline.state_dict, lambda: pipeline.step(x, x)):
        try:
            ask()
        except piper.PipeError as error:
            print(error.diagnostics[0].code, error.diagnostics[0].message)
    # One that the program starts afterwards is not the pipeline's to end.
    ANOTHER
print(ray.is_initialized())
"""


@pytest.mark.parametrize(
    ("target", "another"),
    [("ray-program", "pass"), ("ray-dag", 'ray.init(address="local", num_cpus=1, include_dashboard=False)')],
)
def test_a_pipeline_whose_ray_was_shut_down_says_so_and_ends_no_other(target: str, another: str) -> None:
    program = PROGRAM.replace("TARGET", target).replace("ANOTHER", another)
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    gone = "P712 Ray, on which the ranks ran, was shut down"
    assert done.stdout.splitlines()[-3:] == [gone, gone, str(another != "pass")], done.stderr
