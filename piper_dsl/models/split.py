"""A model as a list of stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import nn

from ..diagnostics import Diagnostic, PipeError
from .assemble import assemble
from .balance import balanced
from .errors import refusal
from .places import Cut, marks, named
from .probe import refuse_other_results
from .trace import Trace, batch_size, trace, traced_example

__all__ = ["SPLITS", "as_stages", "split_model"]

BALANCES = ("time", "parameters")
SPLITS = ("marks", *BALANCES)


def split_model(
    model: nn.Module,
    example_inputs: torch.Tensor | Sequence[Any],
    split: str | Sequence[str],
    *,
    stages: int | None = None,
    fixed_batch: bool = False,
) -> list[nn.Module]:
    """Cuts a model into stages that :class:`piper_dsl.Pipeline` trains.

    ``example_inputs`` is one microbatch: what ``forward`` takes, the batch first in every tensor. ``split`` is

    - a list of layers by qualified name, before whose first call a new stage begins;
    - ``"marks"``: a new stage begins at every :func:`stage_boundary` that forward passes;
    - ``"time"`` or ``"parameters"``: ``stages`` stages, the largest as small as can be, by the measured time of
      forward and backward on the example, or by the number of parameters.

    The first dimension of the inputs is free unless ``fixed_batch``; all other sizes are those of the example.
    The stages hold the model's own parameters under their own names; weights used in several stages are the
    same object in each, which a schedule allows that ties these stages. Stages follow ``train()`` and ``eval()``.

    Raises :class:`PipeError` (P704) for a model that ``torch.export`` cannot trace and for cuts that cannot be
    made, with the place. The stages were run against the model once, forward and backward, on the example.
    """
    example = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    _refuse_what_is_not_asked_right(model, split, stages)
    batch_size(example)
    traced = traced_example(example, fixed_batch)
    traces = {training: trace(model, traced, training, fixed_batch) for training in (True, False)}
    cuts = _cuts(model, traces, example, split, stages)
    made = assemble(model, traces, cuts, fixed_batch)
    refuse_other_results(model, made, example)
    return list(made)


def as_stages(
    model: nn.Module | Sequence[nn.Module], split: str | Sequence[str] | None, example_inputs: Any, stages: int
) -> Sequence[nn.Module]:
    """A list of stages as it is; with ``split``, a whole model cut into so many stages by :func:`split_model`.

    Raises PipeError (P701) for a whole model without what its cut needs.
    """
    if split is None:
        if isinstance(model, nn.Module) and not isinstance(model, nn.Sequential | nn.ModuleList):
            message = f"{type(model).__name__} is a whole model, not a list of stages"
            help_ = 'pass `split="time"` (or "parameters", "marks", names of layers) and `example_inputs`'
            raise PipeError(Diagnostic("P701", message, None, help_))
        return cast(Sequence[nn.Module], model)
    if example_inputs is None:
        message = "a model is cut by running it on an example"
        raise PipeError(Diagnostic("P701", message, None, "pass `example_inputs`: one microbatch"))
    return split_model(cast(nn.Module, model), example_inputs, split, stages=stages)


def _refuse_what_is_not_asked_right(model: nn.Module, split: str | Sequence[str], stages: int | None) -> None:
    if not isinstance(model, nn.Module):
        raise refusal(f"what is cut is a torch module, not a {type(model).__name__}")
    if isinstance(split, str) and split not in SPLITS:
        raise refusal(f"there is no split `{split}`", f"one of {', '.join(SPLITS)}, or a list of layers' names")
    if split in BALANCES and (stages is None or stages < 1):
        raise refusal(f'split="{split}" needs to know how many stages', "pass `stages`, at least 1")


def _cuts(
    model: nn.Module,
    traces: Mapping[bool, Trace],
    example: tuple[Any, ...],
    split: str | Sequence[str],
    stages: int | None,
) -> list[Cut]:
    if split in BALANCES:
        assert isinstance(split, str)
        assert stages is not None
        return balanced(model, traces, example, stages, by=split)
    cuts: list[Cut] = _marked(traces) if split == "marks" else named(model, list(split))
    if stages is not None and len(cuts) + 1 != stages:
        what = "marks" if split == "marks" else "names"
        message = f"{len(cuts)} {what} make {len(cuts) + 1} stages, but {stages} are asked for"
        raise refusal(message, f"give {stages - 1} {what}")
    return cuts


def _marked(traces: Mapping[bool, Trace]) -> list[Cut]:
    training, evaluation = len(marks(traces[True])), len(marks(traces[False]))
    if not training:
        raise refusal("forward passes no mark", "call `piper_dsl.stage_boundary()` where a new stage begins")
    if training != evaluation:
        message = f"forward passes {training} marks in training mode and {evaluation} in evaluation mode"
        raise refusal(message, "mark the same places in both")
    return list(range(training))
