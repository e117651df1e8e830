"""The stages run once against the model: what cannot be traced faithfully must not train.

An exported graph forgets some of what autograd knows, for example a ``torch.autograd.Function``, of which only the
forward is left. So outputs and gradients are compared, in training mode, and outputs in evaluation mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from .closeness import difference, tolerance
from .errors import LIST_INSTEAD, refusal
from .stage_module import StageModule
from .trace import mode

__all__ = ["refuse_other_results", "tensors_of"]

Tensors = tuple[torch.Tensor, ...]


def refuse_other_results(model: nn.Module, stages: Sequence[StageModule], example: tuple[Any, ...]) -> None:
    """Raises PipeError (P704) where stages and model differ on the example. Leaves buffers and gradients alone."""
    for training in (True, False):
        wanted, wanted_gradients = _results(model, [model], example, training)
        found, found_gradients = _results(model, stages, example, training)
        if len(found) != len(wanted):
            raise refusal(f"the stages return {len(found)} tensors, the model {len(wanted)}", LIST_INSTEAD)
        for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
            _refuse_difference(f"output {number}", one, other, training)
        for key, one in wanted_gradients.items():
            _refuse_difference(f"the gradient of `{_name(model, key)}`", one, found_gradients.get(key), training)


def _results(
    model: nn.Module, chain: Sequence[nn.Module], example: tuple[Any, ...], training: bool
) -> tuple[Tensors, dict[int, torch.Tensor]]:
    """The outputs of a chain, and the gradients by the parameters' ids, under the same random numbers each time."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    with torch.random.fork_rng(), torch.set_grad_enabled(training), mode(model, training):
        torch.manual_seed(0)
        for stage in chain:
            if stage is not model:
                stage.train(training)
        outputs = _run_chain(chain, example)
        roots = [x for x in outputs if x.requires_grad]
        found: Sequence[torch.Tensor | None] = ()
        if roots and parameters:
            seeds = [torch.randn_like(x) for x in roots]
            found = torch.autograd.grad(roots, parameters, seeds, allow_unused=True)
    for stage in chain:
        if stage is not model:
            stage.train(model.training)
    pairs = zip(parameters, found, strict=bool(found))
    return tuple(x.detach() for x in outputs), {id(p): g for p, g in pairs if g is not None}


def _run_chain(chain: Sequence[nn.Module], example: tuple[Any, ...]) -> Tensors:
    """The tensors that modules return one after another; their buffers are not changed."""
    values: tuple[Any, ...] = example if not isinstance(chain[0], StageModule) else tensors_of(example)
    for module in chain:
        buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        values = tensors_of(functional_call(module, buffers, values))
    return values


def tensors_of(values: Any) -> Tensors:
    """The tensors in whatever a module takes or returns, in order."""
    return tuple(x for x in pytree.tree_leaves(values) if isinstance(x, torch.Tensor))


def _refuse_difference(what: str, wanted: torch.Tensor, found: torch.Tensor | None, training: bool) -> None:
    differs = difference(wanted, found)
    if differs <= tolerance(wanted.dtype):
        return
    mode_ = "training" if training else "evaluation"
    raise refusal(
        f"the stages do not compute what the model does: in {mode_} mode {what} differs by {differs:.1e} "
        "of its largest value",
        "a torch.autograd.Function, a hook, or a Python value that changes from call to call is lost in a traced "
        f"graph: make them plain tensor operations, {LIST_INSTEAD}",
    )


def _name(model: nn.Module, key: int) -> str:
    return next((name for name, p in model.named_parameters() if id(p) == key), "a parameter")
