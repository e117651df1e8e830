"""piper-dsl run on target local: the report, and models of the user's own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import Result

Invoke = Callable[..., Result]

MINE = '''
"""A model of one's own: stages(n), batches(n), loss."""

import torch
from torch import nn


def stages(count):
    return [nn.Linear(5, 5) for _ in range(count)]


def batches(size):
    generator = torch.Generator().manual_seed(3)
    for _ in range(4):
        yield torch.randn(2, size, 5, generator=generator).unbind()


def loss(found, wanted):
    return nn.functional.mse_loss(found, wanted)
'''

SMALL = ("-p", "p=2", "-p", "m=4", "--target", "local")
LOADED = ("--load-in-ranks",)
OWN = ("--model", "mine:stages", "--data", "mine:batches", "--loss", "mine:loss")


def _reference(seed: int, count: int, steps: int, size: int, rate: float) -> list[float]:
    """The losses of the model of MINE, trained whole."""
    names: dict[str, Callable] = {}
    exec(MINE, names)
    torch.manual_seed(seed)
    model = torch.nn.Sequential(*names["stages"](count))
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    losses = []
    for _, (x, y) in zip(range(steps), names["batches"](size), strict=False):
        loss = names["loss"](model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_the_demo_trains_and_agrees_with_one_process(invoke: Invoke) -> None:
    result = invoke("run", "1f1b", *SMALL, "--steps", "3", "--compare")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "1F1B on local, 3 steps"
    first, _, last = re.fullmatch(r"loss +(\d\.\d{4}) (\S{3}) (\d\.\d{4})", lines[1]).groups()
    assert 5.0 < float(first) < 6.0  # about log(256) nats per byte before training
    assert float(last) < float(first)
    assert lines[2].split() == ["1", first, lines[2].split()[2], last]
    difference = re.search(r"largest difference of losses to one process: (\S+)", result.stdout)
    assert float(difference[1]) < 1e-4


def test_json_reports_losses_times_and_the_difference(invoke: Invoke) -> None:
    result = invoke("run", "1f1b", *SMALL, "--steps", "4", "--compare", "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert sorted(document) == ["largest_difference", "losses", "replicas", "schedule", "seconds", "target"]
    assert (document["schedule"], document["target"]) == ("1F1B", "local")
    assert len(document["losses"]) == 4
    assert document["losses"][-1] < document["losses"][0]
    assert 0 <= document["largest_difference"] < 1e-4
    assert document["seconds"] is not None
    assert all(value > 0 for value in document["seconds"].values())


@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1", "interleaved_1f1b", "gpipe"])
def test_a_model_from_the_current_folder(schedule: str, invoke: Invoke, folder: Path) -> None:
    (folder / "mine.py").write_text(MINE)
    options = ("--steps", "3", "--batch", "8", "--lr", "0.05", "--seed", "7", "--compare", "--format", "json")
    result = invoke("run", schedule, *SMALL, *OWN, *options)
    assert (result.exit_code, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    count = 4 if schedule == "interleaved_1f1b" else 2
    wanted = _reference(7, count, 3, 8, 0.05)
    assert document["losses"] == pytest.approx(wanted, abs=1e-5)
    assert document["largest_difference"] < 1e-5


def test_replicas_share_the_batch(invoke: Invoke, folder: Path) -> None:
    (folder / "mine.py").write_text(MINE)
    options = ("--replicas", "2", "--steps", "4", "--batch", "16", "--lr", "0.05", "--compare")
    result = invoke("run", "1f1b", *SMALL, *OWN, *options)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[0] == "1F1B, 2 replicas on local, 4 steps"
    result = invoke("run", "1f1b", *SMALL, *OWN, *options, "--format", "json")
    document = json.loads(result.stdout)
    assert (document["schedule"], document["replicas"]) == ("1F1B", 2)
    assert document["losses"] == pytest.approx(_reference(0, 2, 4, 16, 0.05), abs=1e-5)
    assert document["largest_difference"] < 1e-5


@pytest.mark.parametrize("listed", [True, False], ids=["a list", "an iterator"])
def test_ranks_that_load_train_on_the_same_batches(invoke: Invoke, folder: Path, listed: bool) -> None:
    (folder / "mine.py").write_text(MINE + ("\n\ndrawn = batches\ndef batches(n): return [*drawn(n)]\n" * listed))
    options = ("--load-in-ranks", "--batch", "8", "--steps", "9" if listed else "4", "--format", "json")
    for more in ((), ("--compare",), ("--steps-per-call", "3")):
        result = invoke("run", "1f1b", *SMALL, *OWN, *options, *more)
        assert (result.exit_code, result.stderr) == (0, "")
        assert json.loads(result.stdout)["losses"] == pytest.approx(_reference(0, 2, 4, 8, 3e-3), abs=1e-5)


def test_the_demo_loads_in_ranks_what_it_loads_in_the_driver(invoke: Invoke) -> None:
    runs = [invoke("run", "1f1b", *SMALL, "--steps", "3", "--format", "json", *more) for more in ((), LOADED)]
    fed, loaded = (json.loads(run.stdout)["losses"] for run in runs)
    assert loaded == fed


def test_a_run_whose_ranks_load_is_resumed(invoke: Invoke, folder: Path) -> None:
    (folder / "mine.py").write_text(MINE)
    options = (*SMALL, *OWN, *LOADED, "--batch", "8", "--checkpoints", "saved", "--format", "json")
    assert invoke("run", "1f1b", *options, "--steps", "2").exit_code == 0
    losses = json.loads(invoke("run", "1f1b", *options, "--resume", "--steps", "4").stdout)["losses"]
    assert losses == pytest.approx(_reference(0, 2, 4, 8, 3e-3)[2:], abs=1e-5)


LOADS = {
    "at random": ("def batches(n): return [(torch.rand(n, 5), torch.rand(n, 5)) for _ in range(4)]", "seed what is"),
    "too few": ("few = batches\ndef batches(n):\n    for _, b in zip(range(2), few(n)): yield b", "end before step 2"),
}


@pytest.mark.parametrize(("text", "said"), LOADS.values(), ids=LOADS)
def test_data_that_ranks_cannot_load_is_told_of(invoke: Invoke, folder: Path, text: str, said: str) -> None:
    (folder / "mine.py").write_text(MINE + text + "\n")
    result = invoke("run", "1f1b", *SMALL, *OWN, *LOADED, "--steps", "4")
    assert result.exit_code == 1
    assert result.stderr.startswith("error[P703]")
    assert said in " ".join(result.stderr.split())


def test_data_that_ends_early_ends_the_training(invoke: Invoke, folder: Path) -> None:
    (folder / "mine.py").write_text(MINE)
    result = invoke("run", "1f1b", *SMALL, *OWN, "--steps", "9", "--format", "json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["losses"] == pytest.approx(_reference(0, 2, 4, 16, 3e-3), abs=1e-5)
    assert document["largest_difference"] is None


def test_training_without_optimizer_steps_is_refused(invoke: Invoke, folder: Path) -> None:
    (folder / "mine.py").write_text(MINE)
    (folder / "no_opt.pipe").write_text("ranks 2\nmicrobatches 2\nrank r { F[0:2] B[0:2] }\n")
    result = invoke("run", "no_opt.pipe", "--target", "local", *OWN, "--steps", "2", "--compare")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error[P701]: the schedule has backwards and no OPT")
    assert "write OPT for every stage" in result.stderr


def test_measured_costs_and_times_are_read_by_simulate_and_compare(invoke: Invoke, folder: Path) -> None:
    result = invoke("run", "zb_h1", *SMALL, "--steps", "3", "--profile", "costs.toml", "--timeline", "times.json")
    assert result.exit_code == 0, result.stderr
    assert "costs  wrote costs.toml, for piper-dsl simulate --costs" in result.stdout
    text = (folder / "costs.toml").read_text()
    assert text.startswith("# ZB-H1 on local: seconds, medians over 2 steps\n")
    assert re.findall(r"^(\w+) = \[", text, re.MULTILINE) == ["F", "I", "W", "OPT"]
    simulated = invoke("simulate", "zb_h1", *SMALL[:4], "--costs", "costs.toml", "--format", "json")
    assert simulated.exit_code == 0
    assert 0 < json.loads(simulated.stdout)["makespan"] < 60
    compared = invoke("compare", "zb_h1", "times.json", *SMALL[:4], "--costs", "costs.toml", "--format", "json")
    predicted, measured = json.loads(compared.stdout)["schedules"]
    assert predicted["makespan"] == json.loads(simulated.stdout)["makespan"]
    assert (measured["name"], measured["measured"]) == ("ZB-H1, measured", True)
    assert 0 < measured["makespan"] < 60


WHOLE = (
    MINE
    + """

def model():
    return nn.Sequential(*(nn.Linear(5, 5) for _ in range(4)))


def model_and_more():
    return [model()]
"""
)


@pytest.mark.parametrize("split", ["2", "time", "parameters"])
def test_a_whole_model_is_cut_and_agrees_with_one_process(invoke: Invoke, folder: Path, split: str) -> None:
    (folder / "mine.py").write_text(WHOLE)
    own = ("--model", "mine:model", *OWN[2:], "--split", split)
    result = invoke("run", "1f1b", *SMALL, *own, "--steps", "3", "--batch", "8", "--format", "json", "--compare")
    assert (result.exit_code, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert document["losses"] == pytest.approx(_reference(0, 4, 3, 8, 3e-3), rel=1e-5)
    assert document["largest_difference"] < 1e-5


SPLITS = {
    "no such layer": ("mine:model", ["--split", "1,9"], "the model has no layer `9`"),
    "another count": ("mine:model", ["--split", "1,2"], "2 names make 3 stages, but 2 are asked for"),
    "whole without a split": ("mine:model", [], "must return a list of torch modules, one per stage"),
    "a list with a split": ("mine:model_and_more", ["--split", "time"], "must return one torch module"),
}


@pytest.mark.parametrize(("model", "options", "said"), SPLITS.values(), ids=SPLITS)
def test_a_cut_that_cannot_be_made_says_so(
    invoke: Invoke, folder: Path, model: str, options: list[str], said: str
) -> None:
    (folder / "mine.py").write_text(WHOLE)
    result = invoke("run", "1f1b", *SMALL, "--model", model, *OWN[2:], *options)
    assert result.exit_code == 1
    assert said in " ".join(result.stderr.split())


FAILING = f"""{MINE}
wait = 2 * 4

def loss(found, wanted):
    global wait
    # Not in the dry run.
    wait -= not found.is_meta
    if wait < 0:
        raise LookupError("the third step")
    return nn.functional.mse_loss(found, wanted)
"""


def test_steps_before_one_that_fails_are_reported(invoke: Invoke, folder: Path) -> None:
    (folder / "failing.py").write_text(FAILING)
    own = ("--model", "failing:stages", "--data", "failing:batches", "--loss", "failing:loss", "--batch", "8")
    files = ("--profile", "costs.toml", "--compare")
    result = invoke("run", "1f1b", *SMALL, *own, *files, "--steps", "4", "--lr", "0.01", "--format", "json")
    assert result.exit_code == 1
    losses = json.loads(result.stdout)["losses"]
    assert losses == [pytest.approx(loss, rel=1e-4) for loss in _reference(0, 2, 2, 8, 0.01)]
    assert (folder / "costs.toml").read_text().startswith("# 1F1B on local")
    assert result.stderr.startswith("error[P710]")
    assert "LookupError: the third step" in result.stderr
