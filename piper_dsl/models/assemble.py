"""From two traces and the cuts to stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import fx, nn

from .build import Part, build
from .crossing import crossings, remade
from .errors import refusal, written_at
from .mutation import changed_values, held_together, refuse_cuts
from .names import Names
from .places import Cut, cut_nodes, refuse_empty_stages, stages_of_nodes
from .stage_module import InputShape, StageModule
from .trace import Trace, is_tensor

__all__ = ["assemble"]


def assemble(
    model: nn.Module, traces: Mapping[bool, Trace], cuts: Sequence[Cut], fixed_batch: bool
) -> list[StageModule]:
    """The stages between the cuts, each with its graph of both modes.

    Raises PipeError (P704) where a cut cannot be made.
    """
    parts = {training: _parts(one, cuts) for training, one in traces.items()}
    names = Names(model)
    made = []
    for number in range(len(cuts) + 1):
        inputs = {training: found[number][1] for training, found in parts.items()}
        shapes = _input_shapes(traces[True], fixed_batch) if number == 0 else ()
        stage = StageModule(inputs, shapes)
        for training, found in parts.items():
            stage.runnables[training] = names.hold(stage, traces[training], found[number][0])
        made.append(stage)
    names.hold_unused(made)
    for stage in made:
        stage.train(model.training)
    return made


def _parts(trace: Trace, cuts: Sequence[Cut]) -> list[tuple[Part, int]]:
    """Per stage, its graph and how many tensors it takes."""
    positions = cut_nodes(trace, cuts)
    held = held_together(trace)
    refuse_cuts(held, positions)
    again = remade(trace, changed_values(trace, held))
    refuse_empty_stages(trace, cuts, positions, again)
    stages = stages_of_nodes(trace, positions)
    values = crossings(trace, stages, len(cuts) + 1, again)
    _refuse_numbers(values[-1])
    parts = []
    for number, (taken, given) in enumerate(pairwise(values)):
        _refuse_odd_inputs(number, taken)
        parts.append((build(trace, stages, number, again, taken, given), len(taken)))
    return parts


def _refuse_odd_inputs(stage: int, taken: Sequence[fx.Node]) -> None:
    if not taken:
        raise refusal(f"stage {stage} would take nothing from the stage before it", "cut elsewhere")
    for node in taken:
        if not is_tensor(node):
            raise refusal(
                f"stage {stage} needs `{node.name}` of a stage before it, which is no tensor and cannot be made again",
                "cut elsewhere, or keep it in a tensor",
                written_at(node.stack_trace),
            )


def _refuse_numbers(results: Sequence[fx.Node]) -> None:
    for node in results:
        if node.op != "get_attr" and not is_tensor(node):
            kind = type(node.meta.get("val")).__name__
            raise refusal(f"the model returns a number ({kind}); stages return tensors", "return it as a tensor")
    if not results:
        raise refusal("the model returns no tensor", "return what the loss needs")


def _input_shapes(trace: Trace, fixed_batch: bool) -> tuple[InputShape, ...]:
    values: list[tuple[str, torch.Tensor]] = [(str(node.target), node.meta["val"]) for node in trace.inputs]
    return tuple(
        InputShape(name, tuple(int(n) if fixed_batch or d else None for d, n in enumerate(x.shape)), x.dtype)
        for name, x in values
    )
