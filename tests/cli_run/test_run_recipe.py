"""piper-dsl run: what steps the optimizers, in which precision, and from which checkpoint; as one process does."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import cos, pi
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from torch import nn

Invoke = Callable[..., Result]

MINE = """
import torch
from torch import nn


def stages(count):
    return [nn.Linear(5, 5) for _ in range(count)]


def batches(size):
    generator = torch.Generator().manual_seed(3)
    for _ in range(6):
        yield torch.randn(2, size, 5, generator=generator).unbind()


def loss(found, wanted):
    return nn.functional.mse_loss(found, wanted)


def total(found, wanted):
    return nn.functional.mse_loss(found, wanted, reduction="sum")


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def halving(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


def broken(parameters):
    raise LookupError("no such rate")
"""
RUN = ("run", "1f1b", "-p", "p=2", "-p", "m=4", "--target", "local", "--model", "mine:stages", "--data", "mine:batches")
LOSS = ("--loss", "mine:loss")
JSON = ("--batch", "8", "--format", "json")


def _run(invoke: Invoke, folder: Path, *options: str) -> dict[str, Any]:
    (folder / "mine.py").write_text(MINE)
    result = invoke(*RUN, *(() if "--loss" in options else LOSS), *JSON, *options)
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


Update = Callable[[nn.Module, torch.optim.Optimizer, int], None]
Make = Callable[[Any], torch.optim.Optimizer]


def _reference(make: Make, update: Update, loss: str = "loss", autocast: bool = False) -> list[float]:
    """The losses of six steps of a plain loop in one process; ``update`` is what follows the backward of a step.

    With ``autocast`` it goes microbatch by microbatch, as there rounding would show.
    """
    names: dict[str, Callable[..., Any]] = {}
    exec(MINE, names)
    torch.manual_seed(0)
    model = nn.Sequential(*names["stages"](2))
    optimizer = make(model.parameters())
    losses = []
    for step, batch in enumerate(names["batches"](8)):
        count, total = 4 if autocast else 1, 0.0
        for x, y in zip(*(part.chunk(count) for part in batch), strict=True):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                found = names[loss](model(x), y)
            (found / count).backward()
            total += found.item() / count
        update(model, optimizer, step)
        losses.append(total)
    return losses


def _plain(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    optimizer.step()
    optimizer.zero_grad()


def _clipped(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    _plain(model, optimizer, step)


def _every_second(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    if step % 2:
        for parameter in model.parameters():
            parameter.grad /= 2
        _plain(model, optimizer, step)


def _decaying(rate: Callable[[int], float], then: Update = _plain) -> Update:
    def update(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        then(model, optimizer, step)

    return update


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05)


def _momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


SGD = ("--optimizer", "SGD", "--lr", "0.05")
LINEAR = ("--scheduler", "linear", "--steps", "6")
RECIPES: dict[str, tuple[tuple[str, ...], Make, Update]] = {
    # name: (options, what makes the optimizer of a plain loop, what updates there)
    "a class of torch": (SGD, _sgd, _plain),
    "a function": (("--optimizer", "mine:momentum"), _momentum, _plain),
    "clipping": ((*SGD, "--max-norm", "0.1"), _sgd, _clipped),
    "several steps in a call": ((*SGD, "--steps-per-call", "4"), _sgd, _plain),
    "accumulation": ((*SGD, "--accumulate", "2"), _sgd, _every_second),
    "linear": ((*SGD, *LINEAR), _sgd, _decaying(lambda step: 0.05 * (1 - step / 6))),
    # To 0 within the run, so within three steps of the optimizers.
    "linear, accumulated": (
        (*SGD, *LINEAR, "--accumulate", "2"),
        _sgd,
        _decaying(lambda step: 0.05 * (1 - step // 2 / 3), _every_second),
    ),
    "cosine": (
        (*SGD, "--scheduler", "cosine", "--steps", "6"),
        _sgd,
        _decaying(lambda step: 0.05 * (1 + cos(pi * step / 6)) / 2),
    ),
    "a scheduler": (
        (*SGD, "--scheduler", "mine:halving"),
        _sgd,
        _decaying(lambda step: 0.05 * 0.5 ** (step // 2)),
    ),
}


@pytest.mark.parametrize(("options", "make", "update"), RECIPES.values(), ids=RECIPES)
def test_options_train_as_a_plain_loop_does(
    invoke: Invoke, folder: Path, options: tuple[str, ...], make: Make, update: Update
) -> None:
    document = _run(invoke, folder, *options, "--compare")
    assert document["losses"] == pytest.approx(_reference(make, update), rel=1e-4)
    assert document["largest_difference"] < 1e-4


def test_a_sum_of_losses_is_not_scaled(invoke: Invoke, folder: Path) -> None:
    options = (*SGD[:2], "--lr", "0.001", "--loss", "mine:total", "--reduction", "sum", "--compare")
    document = _run(invoke, folder, *options)
    wanted = _reference(lambda parameters: torch.optim.SGD(parameters, lr=0.001), _plain, "total")
    assert document["losses"] == pytest.approx(wanted, rel=1e-4)
    assert document["largest_difference"] < 1e-4 * max(wanted)


ROUNDED = 1e-5
"""Far below what bfloat16 rounds."""


def test_autocast_computes_as_torch_does_under_it(invoke: Invoke, folder: Path) -> None:
    losses = _run(invoke, folder, *SGD, "--autocast", "bfloat16")["losses"]
    assert losses == pytest.approx(_reference(_sgd, _plain, autocast=True), abs=ROUNDED)
    single = _reference(_sgd, _plain)
    assert max(abs(one - other) for one, other in zip(losses, single, strict=True)) > 10 * ROUNDED


def test_one_process_is_compared_under_autocast_too(invoke: Invoke, folder: Path) -> None:
    # Gradients of a whole batch round otherwise than those of its parts; the loss before any of them does not.
    document = _run(invoke, folder, *SGD, "--autocast", "bfloat16", "--steps", "1", "--compare")
    assert document["largest_difference"] < ROUNDED


def test_a_run_goes_on_from_its_checkpoint(invoke: Invoke, folder: Path) -> None:
    options = ("--optimizer", "mine:momentum", "--checkpoints", "saved", "--checkpoint-every", "2")
    whole = _run(invoke, folder, "--optimizer", "mine:momentum")["losses"]
    first = _run(invoke, folder, *options, "--steps", "3")["losses"]
    document = _run(invoke, folder, *options, "--resume", "--compare")
    # A run ends with a checkpoint.
    assert (first, document["losses"]) == (pytest.approx(whole[:3]), pytest.approx(whole[3:]))
    assert document["largest_difference"] < 1e-5
    result = invoke(*RUN, *LOSS, *JSON, *options, "--resume", "--steps", "6")
    assert result.exit_code == 1
    assert "the checkpoint in saved has 6 steps, and there are batches for 6" in result.stderr


MISTAKES = {
    "no such optimizer": (("--optimizer", "Adamw"), 1, "torch.optim has no optimizer Adamw"),
    "no such function": (("--optimizer", "mine:nothing"), 1, "--optimizer mine:nothing"),
    "an optimizer that cannot be made": (("--optimizer", "mine:broken"), 1, "no such rate"),
    "no such scheduler": (("--scheduler", "steps"), 1, "one of cosine, linear"),
    "half precision": (("--autocast", "float16"), 2, "bfloat16"),
}


@pytest.mark.parametrize(("options", "code", "said"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told_of(invoke: Invoke, folder: Path, options: tuple[str, ...], code: int, said: str) -> None:
    (folder / "mine.py").write_text(MINE)
    result = invoke(*RUN, *LOSS, *options)
    assert result.exit_code == code, result.output
    assert said in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
