"""What runs are compared with: the same model, whole, in one process."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import piper_dsl as piper
from piper_dsl.diagnostics import Diagnostic, Source
from piper_dsl.expand import expand
from piper_dsl.runtime.whole import WholeModel
from piper_dsl.syntax import parse

EXACT = 1e-12
"""Absolute and relative tolerance of float64: sums in another order, nothing else."""
SINGLE = 2e-6
"""The same for float32."""

Data = torch.Tensor | Sequence[torch.Tensor]
ByStage = Mapping[int, Mapping[str, torch.Tensor]]


def written(text: str, **parameters: int) -> piper.Schedule:
    """The schedule of a text."""
    return expand(parse(Source("test.pipe", text)), parameters)


def trained_whole(
    stages: Sequence[nn.Module], loss_fn: Callable[..., torch.Tensor], optimizer: Any, batches: Sequence[Any]
) -> tuple[list[float], ByStage]:
    """The losses of steps on whole batches, and the state dicts after them; ``stages`` stay as they are."""
    whole = WholeModel(stages, loss_fn, optimizer)
    losses = [whole.step(inputs, targets) for inputs, targets in batches]
    return losses, {number: stage.state_dict() for number, stage in enumerate(whole.stages)}


def whole_gradients(
    stages: Sequence[nn.Module], loss_fn: Callable[..., torch.Tensor], batches: Sequence[Any]
) -> tuple[list[float], dict[int, dict[str, torch.Tensor]]]:
    """The losses of whole batches, and the gradients summed over them; ``stages`` stay as they are."""
    stages = copy.deepcopy(list(stages))
    losses = []
    for inputs, targets in batches:
        values = _many(inputs)
        for stage in stages:
            values = _many(stage(*values))
        loss = loss_fn(*values, *_many(targets))
        loss.backward()
        losses.append(loss.item())
    return losses, gradients_of(stages)


def gradients_of(stages: Sequence[nn.Module]) -> dict[int, dict[str, torch.Tensor]]:
    """The gradients of modules, by stage and parameter."""
    return {
        number: {name: p.grad for name, p in stage.named_parameters() if p.grad is not None}
        for number, stage in enumerate(stages)
    }


def _many(values: Data) -> tuple[torch.Tensor, ...]:
    return (values,) if isinstance(values, torch.Tensor) else tuple(values)


def assert_close(found: ByStage, wanted: ByStage, tolerance: float) -> None:
    """The same stages, names and values."""
    assert {s: sorted(values) for s, values in found.items()} == {s: sorted(values) for s, values in wanted.items()}
    for stage, values in wanted.items():
        for name, value in values.items():
            torch.testing.assert_close(
                found[stage][name], value, rtol=tolerance, atol=tolerance, msg=lambda m, at=(stage, name): f"{at}: {m}"
            )


def assert_close_or_zero(found: ByStage, wanted: ByStage, tolerance: float) -> None:
    """As assert_close, but no gradient at all is as good as a gradient of zeros."""
    for stage in found.keys() | wanted.keys():
        ours, whole = dict(found.get(stage, {})), dict(wanted.get(stage, {}))
        for name in ours.keys() ^ whole.keys():
            assert not ours.pop(name, torch.zeros(1)).any(), (stage, name)
            assert not whole.pop(name, torch.zeros(1)).any(), (stage, name)
        assert_close({stage: ours}, {stage: whole}, tolerance)


def close(values: Any, tolerance: float) -> Any:
    """What compares equal to values within the tolerance, absolute and relative."""
    return pytest.approx(values, abs=tolerance, rel=tolerance)


def snapshot(values: ByStage) -> dict[int, dict[str, torch.Tensor]]:
    """A copy that nobody can change behind our back."""
    return {stage: {name: value.clone() for name, value in one.items()} for stage, one in values.items()}


def rows(schedule: piper.Schedule) -> list[tuple[piper.Operation, ...]]:
    """What every rank is to run, in order."""
    return [schedule.row(rank) for rank in range(schedule.ranks)]


def operations(pipeline: piper.Pipeline) -> list[tuple[piper.Operation, ...]]:
    """What every rank ran in the last step, in order."""
    assert pipeline.last is not None
    return [tuple(timed.operation for timed in row) for row in pipeline.last.operations]


def only(error: pytest.ExceptionInfo[piper.PipeError]) -> Diagnostic:
    """The one finding that an error holds."""
    (finding,) = error.value.diagnostics
    return finding
