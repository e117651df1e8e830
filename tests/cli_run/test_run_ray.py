"""piper-dsl run and the compiled script on Ray, as a user starts them: processes of their own."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Invoke = Callable[..., Result]
Start = Callable[..., "subprocess.CompletedProcess[str]"]

LOADED = ("--load-in-ranks",)
PIPER = ("-c", "from piper_dsl.cli.main import main; main()")

MINE = """
import torch
from torch import nn

class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 5)

    def forward(self, x, *others):
        if x.max() > 1e3:
            raise ValueError("too hot to handle")
        return torch.tanh(self.linear(x)), x.sign().long()

def stages(count):
    return [Half() for _ in range(count)]

def batches(size):
    generator = torch.Generator().manual_seed(3)
    for _ in range(4):
        yield torch.randn(2, size, 5, generator=generator).unbind()

def hot(size):
    x = torch.randn(size, 5)
    yield x, x
    x = x.clone()
    x[size // 2] = 2e3
    yield x, x

def loss(found, signs, wanted):
    return nn.functional.mse_loss(found * signs, wanted)
"""


@pytest.mark.parametrize(("target", "loads"), [("ray-dag", ()), ("ray-program", LOADED)])
def test_a_model_of_ones_own_trains_on_ray_as_in_one_process(
    target: str, loads: tuple[str, ...], start: Start, folder: Path
) -> None:
    (folder / "mine.py").write_text(MINE)
    options = ("--model", "mine:stages", "--data", "mine:batches", "--loss", "mine:loss", "--steps", "4", *loads)
    done = start(
        [*PIPER, "run", "1f1b", "-p", "p=2", "-p", "m=4", "--target", target, *options, "--compare", "--format", "json"]
    )
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert (document["schedule"], document["target"]) == ("1F1B", target)
    assert len(document["losses"]) == 4
    assert document["losses"][0] > 0.1
    assert document["largest_difference"] < 1e-5


def test_a_stage_that_raises_on_ray_gives_one_message(start: Start, folder: Path) -> None:
    (folder / "mine.py").write_text(MINE)
    options = ("--model", "mine:stages", "--data", "mine:hot", "--loss", "mine:loss")
    done = start([*PIPER, "run", "zb_h1", "-p", "p=2", "-p", "m=2", *options])
    assert done.returncode == 1
    assert done.stdout.startswith("ZB-H1 on ray-dag, 1 steps\n")
    assert done.stderr.startswith("error[P710]")
    assert "rank 0: stage 0, forward (F) of microbatch 1: ValueError: too hot to handle" in done.stderr
    assert "mine.py" in done.stderr
    assert done.stderr.count("error[") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("piped", [False, True], ids=["-o", "standard output"])
def test_the_compiled_script_trains_by_itself(piped: bool, invoke: Invoke, start: Start, folder: Path) -> None:
    arguments = ["compile", "1f1b", "-p", "p=2", "-p", "m=2", "--target", "python"]
    result = invoke(*arguments) if piped else invoke(*arguments, "-o", "train.py")
    assert result.exit_code == 0
    script = folder / "train.py"
    if piped:
        script.write_text(result.stdout)
    text = script.read_text()
    operations = ["f0_s0", "f1_s0", "b0_s0", "b1_s0", "opt_s0", "f0_s1", "b0_s1", "f1_s1", "b1_s1", "opt_s1"]
    for name in operations:
        assert len(re.findall(rf"^ +{name} = rank{name[-1]}\.\w+\.bind\(", text, re.MULTILINE)) == 1, name
    if piped:
        compile(text, "train.py", "exec")
        return
    done = start(["train.py"])
    assert done.returncode == 0, done.stderr
    losses = [float(x) for x in re.findall(r"^step \d+: loss (\d+\.\d+)$", done.stdout, re.MULTILINE)]
    assert len(losses) == len(done.stdout.splitlines()) == 10
    assert 5.0 < losses[0] < 6.0
    assert sum(losses[-3:]) / 3 < sum(losses[:3]) / 3 - 0.5
    assert "Traceback" not in done.stderr
