"""A stage that raises, on target local."""

from __future__ import annotations

import pytest
import torch
from runtime_models import HOT, WIDTH, Carry, Faulty, FaultyWeight, first_and_last, sgd
from runtime_reference import only, written
from torch import nn

import piper_dsl as piper


def _batch(hot: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Eight samples for four microbatches, one of which may be hot."""
    x, y = torch.rand(2, 8, WIDTH)
    if hot is not None:
        x[2 * hot : 2 * hot + 2] = 2 * HOT
    return x, y


def test_a_stage_that_raises_is_named_and_the_pipeline_goes_on() -> None:
    # Case G7.
    stages = [Carry(), Faulty("raise")]
    schedule = piper.load("1f1b", p=2, m=4)
    with piper.Pipeline(stages, schedule, loss_fn=first_and_last, optimizer=sgd) as pipeline:
        pipeline.step(*_batch())
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(*_batch(hot=2))
        finding = only(error)
        assert finding.code == "P710"
        assert finding.message == "rank 1: stage 1, forward (F) of microbatch 2: ValueError: too hot to handle"
        assert any("runtime_models.py" in note for note in finding.notes)
        assert pipeline.step(*_batch()) > 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("F[0:4] I[0:4] W[0:4] OPT", "weight gradient (W) of microbatch 3"),
        ("F[0:4] B[0:4] OPT", "backward (B) of microbatch 3"),
    ],
)
def test_an_error_inside_a_weight_gradient(body: str, words: str) -> None:
    schedule = written(f"ranks 2\nmicrobatches 4\nrank r {{ {body} }}")
    with piper.Pipeline([FaultyWeight(), nn.Tanh()], schedule, loss_fn=first_and_last, optimizer=sgd) as pipeline:
        pipeline.step(*_batch())
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(*_batch(hot=3))
        message = f"rank 0: stage 0, {words}: ValueError: the weight gradient is too hot"
        assert (only(error).code, only(error).message) == ("P710", message)


def test_an_error_in_the_loss() -> None:
    def no_loss(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        raise LookupError("what loss?")

    stages = [nn.Tanh(), nn.Linear(WIDTH, WIDTH)]
    with piper.Pipeline(stages, piper.load("1f1b", p=2, m=4), loss_fn=no_loss, optimizer=sgd) as pipeline:
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(*_batch())
        message = "rank 1: stage 1, forward (F) of microbatch 0: LookupError: what loss?"
        assert (only(error).code, only(error).message) == ("P710", message)
