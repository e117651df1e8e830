"""A whole model, cut and trained by a schedule: the losses and parameters of one process."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_zoo import Reader, reader_loss, sgd, words
from torch import nn

import piper_dsl as piper

EXACT = 1e-11
"""Of float64: sums in another order, nothing else."""
Batches = Sequence[tuple[torch.Tensor, torch.Tensor]]


def trained_alone(
    model: nn.Module, loss_fn: Callable[..., torch.Tensor], batches: Batches
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The losses of steps on whole batches in one process, and the state dict after them."""
    model = copy.deepcopy(model)
    optimizer = sgd(list(model.parameters()))
    losses = []
    for inputs, targets in batches:
        outputs = model(inputs)
        loss = loss_fn(*(outputs if isinstance(outputs, tuple) else (outputs,)), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, model.state_dict()


def assert_trained_alike(
    pipeline: piper.Pipeline, model: nn.Module, loss_fn: Callable[..., torch.Tensor], batches: Batches
) -> None:
    losses, state = trained_alone(model, loss_fn, batches)
    with pipeline:
        assert [pipeline.step(*batch) for batch in batches] == pytest.approx(losses, rel=EXACT)
        found = [pair for stage in pipeline.state_dict().values() for pair in stage.items()]
    assert sorted(name for name, _ in found) == sorted(state)
    for name, value in found:
        torch.testing.assert_close(value, state[name], rtol=EXACT, atol=EXACT, msg=lambda m, name=name: f"{name}: {m}")


SCHEDULES = {
    # name: (schedule, split)
    "1f1b by names": (piper.load("1f1b", p=3, m=4), ["blocks.1", "blocks.3"]),
    "1f1b by marks": (piper.load("1f1b", p=3, m=4), "marks"),
    "interleaved": (piper.load("interleaved_1f1b", p=2, m=4), "parameters"),
    "split backward": (piper.load("zb_v", p=2, m=4), "time"),
}


@pytest.mark.parametrize(("schedule", "split"), SCHEDULES.values(), ids=SCHEDULES)
def test_a_pipeline_cuts_and_trains_a_whole_model(schedule: piper.Schedule, split: str | list[str]) -> None:
    torch.manual_seed(1)
    model = Reader()
    pipeline = piper.Pipeline(model, schedule, split=split, example_inputs=words(2), loss_fn=reader_loss, optimizer=sgd)
    assert_trained_alike(pipeline, model, reader_loss, [(words(8, seed), words(8, seed + 9)) for seed in (1, 2)])


def test_a_whole_model_says_what_its_cut_needs() -> None:
    schedule = piper.load("1f1b", p=3, m=4)
    for options, said in (({}, "Reader is a whole model"), ({"split": "marks"}, "cut by running it on an example")):
        with pytest.raises(piper.PipeError) as error:
            piper.Pipeline(Reader(), schedule, loss_fn=reader_loss, optimizer=sgd, **options)
        (finding,) = error.value.diagnostics
        assert finding.code == "P701"
        assert said in finding.message
        assert "example_inputs" in str(finding.help)


def test_stages_that_share_a_weight_need_a_schedule_that_ties_them() -> None:
    model = Reader(tied=True)
    stages = piper.split_model(model, words(2), ["blocks.2"])
    first, second = (dict(stage.named_parameters()) for stage in stages)
    assert first["embed.weight"] is second["head.weight"] is model.embed.weight
    with pytest.raises(piper.PipeError) as error:
        piper.Pipeline(stages, piper.load("1f1b", p=2, m=2), loss_fn=reader_loss, optimizer=sgd)
    assert "stages 0 and 1 share a parameter" in error.value.diagnostics[0].message


def test_a_shared_weight_inside_one_stage_has_both_its_names() -> None:
    model = Reader(tied=True)
    (stage,) = piper.split_model(model, words(2), [])
    assert {"embed.weight", "head.weight"} <= stage.state_dict().keys()
    assert sum(1 for _ in stage.parameters()) == sum(1 for _ in model.parameters())


# --- random models -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A layer on the newest value, and how an older one (``back`` steps ago) takes part."""

    kind: str
    back: int


class Woven(nn.Module):
    """Layers whose values are used again further on: sums, masks, pairs, numbers."""

    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__()
        self.steps = tuple(steps)
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in steps)
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = [x]
        for step, layer in zip(self.steps, self.layers, strict=True):
            values.append(self._value(step, torch.tanh(layer(values[-1])), values[max(0, len(values) - 1 - step.back)]))
        return values[-1] + values[1]

    def _value(self, step: Step, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        if step.kind == "sum":
            return new + old
        if step.kind == "mask":
            return torch.where(old > 0, new, new * 0.5)
        if step.kind == "pair":
            low, high = (new * old).split([1, 2], dim=1)
            return torch.cat([high, low], dim=1)
        return new / old.shape[0] * old.shape[0] if step.kind == "number" else new


@st.composite
def cases(draw: st.DrawFn) -> tuple[piper.Schedule, Woven, str | list[str]]:
    """A schedule of the library, a model, and how to cut it into the schedule's stages."""
    name = draw(st.sampled_from(["gpipe", "1f1b", "zb_h1", "interleaved_1f1b", "zb_v", "v_half"]))
    p = draw(st.integers(2, 3 if name in ("interleaved_1f1b", "zb_v", "v_half") else 6))
    schedule = piper.load(name, p=p, m=p * draw(st.integers(1, 2)))
    count = schedule.stages + draw(st.integers(0, 2))
    kinds = st.sampled_from(["sum", "mask", "pair", "number", "plain"])
    model = Woven([Step(draw(kinds), draw(st.integers(0, 4))) for _ in range(count)])
    places = random.Random(draw(st.integers(0, 99))).sample(range(1, count), schedule.stages - 1)
    split = draw(st.sampled_from(["parameters", [f"layers.{place}" for place in sorted(places)]]))
    return schedule, model, split


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases(), st.integers(1, 2))
def test_random_models_train_alike_under_every_schedule(
    case: tuple[piper.Schedule, Woven, str | list[str]], samples: int
) -> None:
    schedule, model, split = case
    torch.manual_seed(0)
    batches = torch.randn(2, 2, schedule.microbatches * samples, 3, dtype=torch.float64)
    pipeline = piper.Pipeline(
        model,
        schedule,
        split=split,
        example_inputs=batches[0, 0][:samples],
        loss_fn=nn.functional.mse_loss,
        optimizer=sgd,
    )
    assert_trained_alike(pipeline, model, nn.functional.mse_loss, [(x, y) for x, y in batches])
