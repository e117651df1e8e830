"""Do the stages fit each other? A dry run before the first step, on meta tensors, which have shapes and no data.

Not every module runs on them: some look at values, or need a kernel that meta tensors do not have. So a stage is
refused only where it also fails on zeros, at the same place, with an error that speaks of sizes it was given. Whatever
is less clear is left to the first step, which names the operation.
"""

from __future__ import annotations

import copy
import re
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ..diagnostics import Diagnostic, PipeError
from .arity import refuse_wrong_count
from .failure import where_raised
from .layout import Layout
from .message import Message
from .precision import Precision
from .spec import Batch, RankSpec
from .stage import as_tuple

__all__ = ["dry_run", "on_meta", "refuse_misfits"]

Tensors = tuple[torch.Tensor, ...]


def refuse_misfits(specs: Sequence[RankSpec], batches: Sequence[Batch]) -> None:
    """Raises PipeError (P705) for a stage that cannot take what its predecessors return, or a loss that cannot."""
    graph, loss = specs[0].graph, specs[0].loss_fn
    targets = _data(batches, "targets")

    def run(stage: int, module: nn.Module, given: Tensors) -> Tensors | None:
        before = graph.predecessors[stage]
        source = f"stage{'s' * (len(before) > 1)} {', '.join(map(str, before))} returned" if before else "the batch has"
        found = _tried(module, given, before, f"stage {stage} cannot take what {source}")
        if found is not None and loss is not None and not graph.successors[stage]:
            _tried(_Loss(loss), (*found, *targets.get(stage, ())), (), f"the loss of stage {stage} cannot take")
        return found

    dry_run(specs, batches, run)


def dry_run(
    specs: Sequence[RankSpec],
    batches: Sequence[Batch],
    run: Callable[[int, nn.Module, Tensors], Tensors | None],
) -> dict[int, Tensors]:
    """What the stages return on meta tensors, by stage: what ``run(stage, module, inputs)`` does, to the first None."""
    graph, precision = specs[0].graph, Precision(autocast=specs[0].autocast)
    modules = {stage: module for spec in specs for stage, module in spec.modules.items()}
    inputs, outputs = _data(batches, "inputs"), dict[int, Tensors]()
    # What the stages draw is not the caller's to notice.
    with torch.random.fork_rng(devices=[]), torch.no_grad(), precision.forward(), warnings.catch_warnings():
        # Nor what they warn of: they will again.
        warnings.simplefilter("ignore")
        for stage in graph.topological:
            before = graph.predecessors[stage]
            given = tuple(x for s in before for x in outputs[s]) if before else inputs[stage]
            found = run(stage, modules[stage], given)
            if found is None:
                break
            outputs[stage] = found
    return outputs


def _data(batches: Sequence[Batch], name: str) -> Mapping[int, Tensors]:
    """By stage, the first microbatch's tensors, on meta."""
    given = {stage: xs for batch in batches for (stage, i), xs in getattr(batch, name).items() if i == 0}
    return {stage: tuple(x.to("meta") for x in xs) for stage, xs in given.items()}


class _Loss(nn.Module):
    def __init__(self, loss: Callable[..., Any]) -> None:
        super().__init__()
        self._loss = loss

    def forward(self, *values: torch.Tensor) -> Any:
        return self._loss(*values)


def _tried(module: nn.Module, given: Tensors, before: Sequence[int], what: str) -> Tensors | None:
    """What a module returns for meta tensors; None where that is not known. Raises PipeError where it is at fault."""
    try:
        return as_tuple(on_meta(module, given))
    except Exception as error:
        fault = _fault(module, given, error)
    if fault is None:
        return None
    message = _counted(module, given, before) if isinstance(fault, TypeError) else None
    shapes = Layout.of(Message(0, 0, 0, 0, given))
    message = message or f"{what} {shapes}: {type(fault).__name__}: {fault}"
    raise PipeError(Diagnostic("P705", message, notes=where_raised(fault))) from fault


def _fault(module: nn.Module, given: Tensors, on_meta_: Exception) -> Exception | None:
    """What the module raises for zeros of these shapes, if what it raised for meta tensors is the same fault."""
    if isinstance(on_meta_, NotImplementedError) or "meta" in str(on_meta_).lower():
        return None
    try:
        real = copy.deepcopy(module)
    except Exception:
        # What cannot be copied is told of where it is sent to its rank.
        return None
    try:
        as_tuple(real(*(torch.zeros(x.shape, dtype=x.dtype) for x in given)))
    except Exception as error:
        same = type(error) is type(on_meta_) and _places(error)[-1] in _places(on_meta_)
        return error if same and (isinstance(error, TypeError) or _speaks_of(error, given)) else None
    return None


def _places(error: Exception) -> list[tuple[str, int | None]]:
    return [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)[1:]]


def _speaks_of(error: Exception, given: Tensors) -> bool:
    sizes = {str(size) for x in given for size in (*x.shape, x.shape.numel())}
    return not sizes.isdisjoint(re.findall(r"\d+", str(error)))


def _counted(module: nn.Module, given: Tensors, before: Sequence[int]) -> str | None:
    """A wrong number of tensors, in words; None where it is right."""
    try:
        refuse_wrong_count(module, len(given), before)
    except ValueError as error:
        return str(error)
    return None


def on_meta(module: nn.Module, inputs: Tensors) -> Any:
    """What a copy of the module returns whose parameters and buffers have shapes only."""
    tensors = [*module.parameters(), *module.buffers()]
    memo = {id(tensor): nn.Parameter(tensor.to("meta"), requires_grad=False) for tensor in tensors}
    with torch.no_grad():
        return copy.deepcopy(module, memo)(*inputs)
