"""piper-dsl run with something wrong: exit code 1, one message that says what, no traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Invoke = Callable[..., Result]

GOOD = """
import torch
from torch import nn

def stages(count):
    return [nn.Linear(5, 5) for _ in range(count)]

def batches(size):
    for _ in range(3):
        yield torch.randn(2, size, 5).unbind()

def loss(found, wanted):
    return nn.functional.mse_loss(found, wanted)
"""

WRONG_MODELS = {
    # name: (module text added to GOOD, --model, what the message says)
    "no such module": ("", "nowhere:stages", ["--model nowhere:stages", "No module named 'nowhere'"]),
    "no such function": ("", "mine:nothing", ["--model mine:nothing", "no attribute 'nothing'"]),
    "no colon": ("", "mine", ["--model mine"]),
    "not a function": ("stages = 3", "mine:stages", ["--model mine:stages", "is not a function"]),
    "not a list": (
        "def stages(n): return nn.Linear(5, 5)",
        "mine:stages",
        ["--model mine:stages", "must return a list"],
    ),
    "nothing": ("def stages(n): pass", "mine:stages", ["--model mine:stages", "must return a list"]),
    "not modules": ("def stages(n): return [torch.tanh] * n", "mine:stages", ["must return a list of torch modules"]),
    "too few": ("def stages(n): return [nn.Linear(5, 5)]", "mine:stages", ["has 2 stages, the model has 1"]),
    "too many": (
        "def stages(n): return [nn.Linear(5, 5) for _ in range(7)]",
        "mine:stages",
        ["has 2 stages, the model has 7"],
    ),
    "raises": (
        "def stages(n): raise LookupError('no weights here')",
        "mine:stages",
        ["--model mine:stages raised LookupError: no weights here"],
    ),
    "takes two": ("def stages(n, width): return []", "mine:stages", ["--model mine:stages", "width"]),
    "does not parse": ("def stages(n) return", "mine:stages", ["--model mine:stages", "mine.py"]),
    "raises when imported": ("raise OSError('no disk')", "mine:stages", ["--model mine:stages", "no disk"]),
    "imports what is missing": ("import nowhere_at_all", "mine:stages", ["nowhere_at_all"]),
    "fails in a stage": (
        "class Bad(nn.Module):\n    def forward(self, x): raise ValueError('bad day')\n"
        "def stages(n): return [nn.Linear(5, 5), Bad()]",
        "mine:stages",
        ["rank 1: stage 1, forward (F) of microbatch 0: ValueError: bad day", "mine.py"],
    ),
    "shapes that do not fit": (
        "def stages(n): return [nn.Linear(5, 4), nn.Linear(5, 5)]",
        "mine:stages",
        ["stage 1 cannot take what stage 0 returned", "RuntimeError", "shapes"],
    ),
}

WRONG_DATA = {
    "raises": ("def batches(n): raise LookupError('no data here')", ["--data mine:batches", "no data here"]),
    "empty": ("def batches(n): return []", ["--data mine:batches has no batch"]),
    "not iterable": ("def batches(n): return 3", ["--data mine:batches", "int"]),
    "not pairs": ("def batches(n): return [torch.zeros(n, 5)] * 3", ["--data mine:batches", "(inputs, targets)"]),
    "raises on the way": (
        "def batches(n):\n    yield torch.zeros(2, n, 5).unbind()\n    raise LookupError('torn tape')",
        ["--data mine:batches", "torn tape"],
    ),
    "not divisible": (
        "def batches(n): return [torch.zeros(2, 7, 5).unbind()] * 3",
        ["a batch of 7 inputs cannot be cut into 4 equal microbatches"],
    ),
    "too small": (
        "def batches(n): return [torch.zeros(2, 2, 5).unbind()] * 3",
        ["a batch of 2 inputs cannot be cut into 4 equal microbatches"],
    ),
}

WRONG_LOSS = {
    "raises": ("def loss(found, wanted): raise LookupError('lost')", ["stage 1, forward (F) of microbatch 0", "lost"]),
    "no number": ("def loss(found, wanted): return found", ["the loss must be one number", "(4, 5)"]),
    "takes one": ("def loss(found): return found.sum()", ["the loss of stage 1 cannot take", "loss()"]),
}


def _assert_refused(result: Result, words: list[str]) -> None:
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.stderr.startswith("error[P7")
    assert result.stderr.count("error[") == 1
    assert [word for word in words if word not in result.stderr] == []
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("text", "model", "words"), WRONG_MODELS.values(), ids=WRONG_MODELS)
def test_a_wrong_model(text: str, model: str, words: list[str], invoke: Invoke, folder: Path) -> None:
    (folder / "mine.py").write_text(GOOD + text + "\n")
    options = ("--model", model, "--data", "mine:batches", "--loss", "mine:loss", "--target", "local", "--steps", "2")
    _assert_refused(invoke("run", "1f1b", "-p", "p=2", "-p", "m=4", *options), words)


def _run_mine(invoke: Invoke, folder: Path, text: str) -> Result:
    (folder / "mine.py").write_text(GOOD + text + "\n")
    options = ("--model", "mine:stages", "--data", "mine:batches", "--loss", "mine:loss", "--target", "local")
    return invoke("run", "1f1b", "-p", "p=2", "-p", "m=4", *options, "--steps", "3")


@pytest.mark.parametrize(("text", "words"), WRONG_DATA.values(), ids=WRONG_DATA)
def test_wrong_data(text: str, words: list[str], invoke: Invoke, folder: Path) -> None:
    _assert_refused(_run_mine(invoke, folder, text), words)


@pytest.mark.parametrize(("text", "words"), WRONG_LOSS.values(), ids=WRONG_LOSS)
def test_a_wrong_loss(text: str, words: list[str], invoke: Invoke, folder: Path) -> None:
    _assert_refused(_run_mine(invoke, folder, text), words)


def test_a_batch_that_does_not_fit_the_microbatches(invoke: Invoke) -> None:
    # Case C9, with the demo's own data.
    result = invoke("run", "1f1b", "-p", "p=2", "-p", "m=4", "--batch", "2", "--target", "local", "--steps", "1")
    _assert_refused(result, ["a batch of 2 inputs cannot be cut into 4 equal microbatches", "multiple of 4"])


def test_a_schedule_that_does_not_check_trains_nothing(invoke: Invoke, folder: Path) -> None:
    (folder / "bad.pipe").write_text("ranks 2\nmicrobatches 2\nrank 0: F0 B0 F1 B1\nrank 1: F1 F0 B0 B1\n")
    result = invoke("run", "bad.pipe", "--target", "local")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error[P301]")
    assert "bad.pipe:3:12" in result.stderr


LOCAL = ("--target", "local")
USAGE: dict[str, tuple[tuple[str, ...], str]] = {
    # The first option is the one at fault; beside it, the fix.
    "no steps": (("--steps", "0"), "x>=1"),
    "no samples": (("--batch", "0"), "x>=1"),
    "a negative rate": (("--lr", "-1"), "x>=0.0"),
    "no number for a rate": (("--lr", "nan"), "a number such as 0.003"),
    "no time": (("--timeout", "0"), "x>=0.1"),
    "no number of seconds": (("--timeout", "nan"), "leave it out"),
    "endless": (("--timeout", "inf"), "leave it out"),
    "no such target": (("--target", "moon"), "ray-program"),
    "a parameter without a value": (("-p", "p"), "-p name=value"),
    "a seed too large": (("--seed", "99999999999999999999999"), "x<=9223372036854775807"),
    "a seed too small": (("--seed", str(-(2**63) - 1)), "-9223372036854775808<=x"),
    "a norm of nothing": (("--max-norm", "0"), "write a positive number"),
    "a negative norm": (("--max-norm", "-1"), "write a positive number"),
    "no number for a norm": (("--max-norm", "nan"), "write a positive number"),
    "no number of CPUs": (("--num-cpus", "nan"), "such as 1 or 0.5"),
    "all CPUs there are": (("--num-cpus", "inf"), "such as 1 or 0.5"),
    "an empty address": (("--address", " "), "HOST:PORT"),
    "an address for local": (("--address", "10.0.0.1:6379", *LOCAL), "ray-dag and ray-program"),
    "CPUs for local": (("--num-cpus", "2", *LOCAL), "ray-dag and ray-program"),
    "GPUs for local": (("--num-gpus", "0", *LOCAL), "ray-dag and ray-program"),
    "a strategy for local": (("--strategy", "spread", *LOCAL), "ray-dag and ray-program"),
    "a transport for local": (("--transport", "gloo", *LOCAL), "it is for ray-dag; target local"),
    "a transport for ray-program": (("--transport", "gloo", "--target", "ray-program"), "it is for ray-dag"),
    "communicators for ray-dag": (("--transport", "pair", "--target", "ray-dag"), "it is for ray-program"),
    "checkpoints nowhere": (("--checkpoints", ""), "--checkpoints runs/a"),
    "how often, without checkpoints": (("--checkpoint-every", "3"), "add --checkpoints FOLDER"),
    "restarts without checkpoints": (("--max-restarts", "1"), "add --checkpoints FOLDER"),
    "resuming from nowhere": (("--resume",), "add --checkpoints FOLDER"),
    "a timeline that visualize would not know": (("--timeline", "measured.svg"), "does not end in .json"),
    "a profile of no format": (("--profile", "costs"), "does not end in .toml or .json"),
    "one file for two": (("--timeline", "a.json", "--profile", "a.json"), "name another"),
}


@pytest.mark.parametrize(("options", "fix"), USAGE.values(), ids=USAGE)
def test_wrong_usage_names_the_option_and_the_fix(options: tuple[str, ...], fix: str, invoke: Invoke) -> None:
    result = invoke("run", "1f1b", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr
    said = " ".join(result.stderr.replace("│", " ").split())
    assert [word for word in (options[0], fix) if word not in said] == []


def test_a_target_that_may_turn_out_to_be_local_takes_the_options_of_all(invoke: Invoke, folder: Path) -> None:
    (folder / "mine.py").write_text(GOOD + "def stages(n): raise LookupError('options are fine')\n")
    options = ("--target", "auto", "--num-gpus", "0", "--strategy", "spread", "--transport", "shared-memory")
    _assert_refused(invoke("run", "1f1b", *options, "--model", "mine:stages"), ["options are fine"])


def test_too_many_replicas_are_refused_before_anything_is_made_of_them(invoke: Invoke) -> None:
    result = invoke("run", "1f1b", "-p", "p=2", "-p", "m=4", *LOCAL, "--replicas", "100000")
    _assert_refused(result, ["a batch of 16 inputs cannot be cut into 400000 equal microbatches"])
    result = invoke("run", "1f1b", "-p", "p=2", "-p", "m=4", *LOCAL, "--replicas", "5", "--max-ops", "50")
    assert result.exit_code == 1
    assert result.stderr.startswith("error[P208]: 5 replicas have 90 operations, more than the limit of 50\n")
    assert "take fewer --replicas, or raise the limit with `--max-ops`" in result.stderr


PLACES = {
    "a folder": ("--profile", "taken.toml", "cannot write taken.toml: Is a directory"),
    "a folder for a timeline": ("--timeline", "taken.json", "cannot write taken.json: Is a directory"),
    "within a file": ("--timeline", "mine.py/a/b.json", "cannot write mine.py/a/b.json: mine.py is not a directory"),
    "a name too long": ("--timeline", f"{'x' * 300}.json", "File name too long"),
    "checkpoints in a file": ("--checkpoints", "mine.py", "cannot write mine.py: mine.py is not a directory"),
}


@pytest.mark.parametrize(("option", "path", "said"), PLACES.values(), ids=PLACES)
def test_what_could_not_be_written_is_told_of_before_training(
    option: str, path: str, said: str, invoke: Invoke, folder: Path
) -> None:
    (folder / "mine.py").write_text(GOOD + "def stages(n): raise LookupError('it trains')\n")
    (folder / "taken.toml").mkdir()
    (folder / "taken.json").mkdir()
    result = invoke("run", "1f1b", *LOCAL, "--model", "mine:stages", option, path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error[P002]: cannot write ")
    assert said in result.stderr
    assert "it trains" not in result.stderr
