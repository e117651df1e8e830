"""What piper-dsl run reports where training diverges or a file cannot be written; files of costs in both formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import Result

from piper_dsl.ir.operations import Kind
from piper_dsl.ir.profile import read_profile

Invoke = Callable[..., Result]

MINE = """
import os

import torch
from torch import nn


def stages(count):
    return [nn.Linear(5, 5) for _ in range(count)]


def batches(size):
    for _ in range(4):
        yield torch.randn(2, size, 5).unbind()


def spikes(size):
    for step, (x, y) in enumerate(batches(size)):
        yield x, y * (torch.inf if step == 1 else 1)


def occupied(size):
    os.makedirs("costs.json")
    yield from batches(size)


def loss(found, wanted):
    return nn.functional.mse_loss(found, wanted)


def unlearnt(parameters):
    return torch.optim.SGD(parameters, lr=0.0)


def lost(parameters):
    return torch.optim.SGD(parameters, lr=torch.inf)
"""
RUN = ("run", "1f1b", "-p", "p=2", "-p", "m=4", "--target", "local", "--model", "mine:stages", "--loss", "mine:loss")
DIVERGED = ("--data", "mine:batches", "--optimizer", "mine:lost")


@pytest.fixture
def run(invoke: Invoke, folder: Path) -> Invoke:
    """``run("--data", …)``: trains the model of MINE."""
    (folder / "mine.py").write_text(MINE)
    return lambda *options: invoke(*RUN, *options)


def _no_json(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not in JSON")


def _document(result: Result) -> dict[str, Any]:
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout, parse_constant=_no_json)


def test_a_run_that_diverges_says_from_where(run: Invoke) -> None:
    result = run(*DIVERGED, "--steps", "4")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[1].endswith(" ▁××× nan")
    assert lines[3].strip() == "the loss is not finite from step 2 on: the training has diverged"


def test_steps_of_a_run_that_diverges_count_from_the_first_of_all(run: Invoke) -> None:
    saved = ("--checkpoints", "saved", *DIVERGED)
    assert run(*saved, "--steps", "2").exit_code == 0
    result = run(*saved, "--resume", "--steps", "4")
    assert "loss   nan ×× nan" in result.stdout
    assert "the loss is not finite from step 3 on" in result.stdout


def test_a_loss_that_is_finite_again_is_no_divergence(run: Invoke) -> None:
    options = ("--data", "mine:spikes", "--optimizer", "mine:unlearnt", "--steps", "4")
    # The gradient of an infinite loss times a rate of 0 is not 0.
    assert "from step 2 on" in run(*options).stdout
    said = run(*options, "--accumulate", "9").stdout
    assert "the loss is not finite in 1 of 4 steps, first in step 2" in said
    assert "diverged" not in said


def test_a_run_that_diverges_is_json_with_null(run: Invoke) -> None:
    document = _document(run(*DIVERGED, "--steps", "3", "--compare", "--format", "json"))
    assert document["losses"][0] > 0
    assert document["losses"][1:] == [None, None]
    # One process diverges too.
    assert 0 <= document["largest_difference"] < 1e-5


def test_a_report_comes_before_files_that_cannot_be_written_and_other_files(run: Invoke, folder: Path) -> None:
    options = ("--data", "mine:occupied", "--steps", "3", "--profile", "costs.json", "--timeline", "times.json")
    result = run(*options)
    assert result.exit_code == 1
    assert result.stdout.startswith("1F1B on local, 3 steps\nloss ")
    assert "times  wrote times.json" in result.stdout
    assert "costs  wrote" not in result.stdout
    assert result.stderr == "error[P002]: cannot write costs.json: Is a directory\n\n"
    assert (folder / "times.json").is_file()


def test_measured_costs_are_toml_or_json_as_their_name_says(run: Invoke, folder: Path) -> None:
    for name in ("costs.json", "costs.toml"):
        _document(run("--data", "mine:batches", "--steps", "3", "--profile", name, "--format", "json"))
    assert sorted(json.loads((folder / "costs.json").read_text())) == ["costs", "latency", "overhead"]
    assert (folder / "costs.toml").read_text().startswith("# 1F1B on local: seconds")
    json_costs, toml_costs = (read_profile(name) for name in ("costs.json", "costs.toml"))
    assert list(json_costs.kinds) == list(toml_costs.kinds) == [(Kind.F,), (Kind.B,), (Kind.OPT,)]
    assert all(len(costs) == 2 for costs in json_costs.kinds.values())
