"""Do the stages fit each other? A dry run before the first step, on meta tensors, which have shapes and no data.

Not every module runs on them: some look at values, or need a kernel that meta tensors do not have. So a stage is
refused only where it also fails on zeros, at the same place, with an error that speaks of sizes it was given, or of
gradients. Whatever is less clear is left to the first step, which names the operation.
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
from .arity import wrong_count
from .failure import where_raised
from .layout import Layout
from .message import Message
from .precision import Precision
from .spec import Batch, RankSpec
from .stage import as_tuple, loss_of

__all__ = ["dry_run", "on_meta", "refuse_misfits"]

Tensors = tuple[torch.Tensor, ...]


def refuse_misfits(specs: Sequence[RankSpec], batches: Sequence[Batch]) -> None:
    """Raises PipeError (P705) for a stage that cannot take what its predecessors return, or a loss that cannot."""
    graph, loss, training = specs[0].graph, specs[0].loss_fn, batches[0].training
    targets = _data(batches, "targets")

    def run(stage: int, module: nn.Module, given: Tensors) -> Tensors | None:
        before = graph.predecessors[stage]
        source = f"stage{'s' * (len(before) > 1)} {', '.join(map(str, before))} returned" if before else "the batch has"

        def counted() -> str | None:
            said = wrong_count(module, len(given), before)
            return said and f"stage {stage}: {said}"

        found = _tried(module, given, training, f"stage {stage} cannot take what {source}", counted)
        if found is not None and loss is not None and not graph.successors[stage]:
            trains = any(x.requires_grad for x in (*module.parameters(), *given))
            values = (*found, *targets.get(stage, ()))
            _tried(_Loss(loss, trains), values, training, f"the loss of stage {stage} cannot take")
        return found

    dry_run(specs, batches, run)


def dry_run(
    specs: Sequence[RankSpec],
    batches: Sequence[Batch],
    run: Callable[[int, nn.Module, Tensors], Tensors | None],
) -> dict[int, Tensors]:
    """What the stages return on meta tensors, by stage: what ``run(stage, module, inputs)`` does, to the first None.

    The inputs need gradients where those of the step do.
    """
    graph, precision = specs[0].graph, Precision(autocast=specs[0].autocast)
    modules = {stage: module for spec in specs for stage, module in spec.modules.items()}
    inputs, outputs = _data(batches, "inputs"), dict[int, Tensors]()
    trains = torch.set_grad_enabled(specs[0].trained and batches[0].training)
    # What the stages draw is not the caller's to notice.
    with torch.random.fork_rng(devices=[]), trains, precision.forward(), warnings.catch_warnings():
        # Nor what they warn of: they will again.
        warnings.simplefilter("ignore")
        for stage in graph.topological:
            before = graph.predecessors[stage]
            given = tuple(x for s in before for x in outputs[s]) if before else inputs[stage]
            found = run(stage, modules[stage], given)
            if found is None:
                break
            outputs[stage] = tuple(x.detach().requires_grad_(x.requires_grad) for x in found)
    return outputs


def _data(batches: Sequence[Batch], name: str) -> Mapping[int, Tensors]:
    """By stage, the first microbatch's tensors, on meta."""
    given = {stage: xs for batch in batches for (stage, i), xs in getattr(batch, name).items() if i == 0}
    return {stage: tuple(x.to("meta") for x in xs) for stage, xs in given.items()}


class _Loss(nn.Module):
    def __init__(self, loss: Callable[..., Any], trains: bool) -> None:
        super().__init__()
        self._loss, self._trains = loss, trains

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        return loss_of(self._loss, values, self._trains)


def _tried(
    module: nn.Module, given: Tensors, training: bool, what: str, counted: Callable[[], str | None] = lambda: None
) -> Tensors | None:
    """What a module returns for meta tensors; None where that is not known.

    Raises PipeError where it is at fault, with what ``counted`` says of a wrong number of them.
    """
    try:
        return as_tuple(on_meta(module, given, training))
    except Exception as error:
        fault = _fault(module, given, training, error)
    if fault is None:
        return None
    message = counted() if isinstance(fault, TypeError) else None
    shapes = Layout.of(Message(0, 0, 0, 0, given))
    message = message or f"{what} {shapes}: {type(fault).__name__}: {fault}"
    raise PipeError(Diagnostic("P705", message, notes=where_raised(fault))) from fault


def _fault(module: nn.Module, given: Tensors, training: bool, on_meta_: Exception) -> Exception | None:
    """What the module raises for zeros of these shapes, if what it raised for meta tensors is the same fault."""
    if isinstance(on_meta_, NotImplementedError) or "meta" in str(on_meta_).lower():
        return None
    try:
        real = _copied(module, training, {})
    except Exception:
        # What cannot be copied is told of where it is sent to its rank.
        return None
    try:
        as_tuple(real(*(torch.zeros_like(x, device="cpu", requires_grad=x.requires_grad) for x in given)))
    except Exception as error:
        same = type(error) is type(on_meta_) and _places(error)[-1] in _places(on_meta_)
        return error if same and (isinstance(error, TypeError) or _is_clear(error, given)) else None
    return None


def _places(error: Exception) -> list[tuple[str, int | None]]:
    return [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)[1:]]


def _is_clear(error: Exception, given: Tensors) -> bool:
    """Whether an error is about what meta tensors have in common with others: sizes, and that they need gradients."""
    sizes = {str(size) for x in given for size in (*x.shape, x.shape.numel())}
    said = str(error)
    return "requires grad" in said or "no gradient" in said or not sizes.isdisjoint(re.findall(r"\d+", said))


def on_meta(module: nn.Module, inputs: Tensors, training: bool) -> Any:
    """What a copy of the module returns whose parameters and buffers have shapes only, in its mode for the step."""
    tensors = [*module.parameters(), *module.buffers()]
    memo = {id(x): nn.Parameter(x.to("meta"), requires_grad=x.requires_grad) for x in tensors}
    return _copied(module, training, memo)(*inputs)


def _copied(module: nn.Module, training: bool, memo: dict[int, Any]) -> nn.Module:
    found = copy.deepcopy(module, memo)
    return found if training else found.eval()
