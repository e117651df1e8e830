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


@pytest.mark.parametrize(
    "options",
    [("--steps", "0"), ("--batch", "0"), ("--lr", "-1"), ("--timeout", "0"), ("--target", "moon"), ("-p", "p")],
)
def test_an_option_out_of_range_is_a_usage_error(options: tuple[str, str], invoke: Invoke) -> None:
    result = invoke("run", "1f1b", *options)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    assert options[0] in result.stderr or options[1] in result.stderr


def test_a_timeline_that_visualize_would_not_know(invoke: Invoke) -> None:
    result = invoke("run", "1f1b", "--timeline", "measured.svg")
    assert result.exit_code == 2
    assert "the name of a timeline ends in .json" in result.stderr
