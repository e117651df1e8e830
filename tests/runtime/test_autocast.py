"""Mixed precision on every target: what one process gives under the same autocast."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from runtime_models import WIDTH, sgd
from runtime_reference import assert_close, close, gradients_of, only, written
from torch import nn

import piper_dsl as piper
from piper_dsl.runtime.settings import Settings
from piper_dsl.runtime.whole import WholeModel

MSE = nn.functional.mse_loss
TEXT = "ranks 2\nmicrobatches 2\nrank 0 { F[0:2] R0 I0 W0 R1 I1 W1 }\nrank 1 { F0 I0 W0 F1 B1 }"
SUMS = 1e-6
"""Gradients of microbatches are added up in float32, in whatever order."""


class Recorded(nn.Module):
    """A layer that says in its state what data type came in."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("halved", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.halved.fill_(float(x.dtype == torch.bfloat16))
        return self.linear(torch.tanh(self.linear(self.norm(x))))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As ranks have: in bfloat16 another division of a sum shows."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _stages() -> list[nn.Module]:
    torch.manual_seed(0)
    return [Recorded(), Recorded()]


def _batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2, 8, WIDTH, generator=torch.Generator().manual_seed(1)).unbind()


def _reference() -> tuple[float, list[nn.Module]]:
    """One process, one microbatch after the other."""
    stages, loss = copy.deepcopy(_stages()), 0.0
    for x, y in zip(*(part.chunk(2) for part in _batch()), strict=True):
        with torch.autocast("cpu", torch.bfloat16):
            found = MSE(stages[1](stages[0](x)), y) / 2
        found.backward()
        loss += found.item()
    return loss, stages


@pytest.mark.parametrize("target", ["local", "ray-program", "ray-dag"])
@pytest.mark.usefixtures("warm")
def test_autocast_gives_what_one_process_gives(target: str) -> None:
    loss, reference = _reference()
    arguments = {"loss_fn": MSE, "target": target, "timeout": 60.0}
    with piper.Pipeline(_stages(), written(TEXT), autocast=torch.bfloat16, **arguments) as pipeline:
        assert pipeline.step(*_batch()) == close(loss, SUMS)
        found = pipeline.gradients()
        assert_close(found, gradients_of(reference), SUMS)
        assert {value.dtype for values in found.values() for value in values.values()} == {torch.float32}
        # What goes between the ranks is half as large.
        assert [state["halved"].item() for state in pipeline.state_dict().values()] == [0.0, 1.0]
        assert pipeline.evaluate(*_batch()) == close(loss, SUMS)


def test_the_loss_of_a_whole_batch_is_that_of_its_microbatches_under_autocast_alone() -> None:
    settings = Settings(autocast=torch.bfloat16)
    whole = WholeModel(_stages(), MSE, sgd, settings).step(*_batch())
    single = WholeModel(_stages(), MSE, sgd).step(*_batch())
    loss, _ = _reference()
    assert whole == close(loss, SUMS)
    assert single != close(loss, 10 * SUMS)


def test_float16_needs_what_pipelines_do_not_do() -> None:
    with pytest.raises(piper.PipeError) as error:
        piper.Pipeline(_stages(), written(TEXT), loss_fn=MSE, autocast=torch.float16)
    assert (only(error).code, only(error).help) == ("P702", "use torch.bfloat16, or None")
