"""A model's forward as a graph of tensor operations, through ``torch.export``.

The model is exported twice, in training and in evaluation mode, because a graph has its mode written into it:
dropout is an operation with a flag, attention has its probability of dropping as a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from .errors import LIST_INSTEAD, first_line, refusal, user_places
from .export_log import quiet_export

__all__ = ["Trace", "batch_size", "inner_graphs", "is_number", "is_tensor", "mode", "trace", "traced_example"]


@dataclass(frozen=True, eq=False)
class Trace:
    """One exported call: ``root`` holds the graph and what its ``get_attr`` nodes name."""

    root: fx.GraphModule

    @property
    def nodes(self) -> list[fx.Node]:
        """The nodes in the order they run, without the guards that export adds."""
        return [node for node in self.root.graph.nodes if node.op != "call_module"]

    @property
    def inputs(self) -> tuple[fx.Node, ...]:
        """The tensors that the model takes."""
        return tuple(node for node in self.nodes if node.op == "placeholder" and is_tensor(node))

    @property
    def results(self) -> tuple[fx.Node, ...]:
        """What the model returns, without structure and without None."""
        (output,) = (node for node in self.nodes if node.op == "output")
        found: list[fx.Node] = []
        fx.node.map_arg(output.args[0], found.append)
        return tuple(found)

    def attribute(self, target: object) -> Any:
        """What the target of a ``get_attr`` node names: a parameter, a buffer, a constant, or an inner graph."""
        path, _, leaf = str(target).rpartition(".")
        return getattr(self.root.get_submodule(path), leaf)


def inner_graphs(node: fx.Node) -> dict[fx.Node, fx.Graph]:
    """The graphs that a node runs: those of a region without gradients, of a branch. By the node that names each."""
    found = {}
    for argument in node.all_input_nodes:
        if argument.op == "get_attr" and not is_tensor(argument):
            path, _, leaf = str(argument.target).rpartition(".")
            root = argument.graph.owning_module
            assert root is not None
            inner = getattr(root.get_submodule(path), leaf)
            if isinstance(inner, fx.GraphModule):
                found[argument] = inner.graph
    return found


def is_tensor(node: fx.Node) -> bool:
    """Whether a node's value is a tensor."""
    return isinstance(node.meta.get("val"), torch.Tensor)


def is_number(node: fx.Node) -> bool:
    """Whether a node's value is a number, known when the graph runs."""
    return isinstance(node.meta.get("val"), int | float | bool | torch.SymInt | torch.SymFloat | torch.SymBool)


@contextmanager
def mode(model: nn.Module, training: bool) -> Iterator[None]:
    """The model in training mode, as far as it is meant to be, or all of it in evaluation mode.

    A model that already is in training mode may have frozen parts that are not; those stay as they are.
    """
    before = {module: module.training for module in model.modules()}
    if not training or not model.training:
        model.train(training)
    try:
        yield
    finally:
        for module, was in before.items():
            module.training = was


def batch_size(example: Sequence[Any]) -> int:
    """The length of the first dimension that all tensors of an example share. Raises PipeError (P704)."""
    tensors = [x for x in pytree.tree_leaves(tuple(example)) if isinstance(x, torch.Tensor)]
    sizes = {len(x) if x.dim() else 0 for x in tensors}
    if len(sizes) != 1 or 0 in sizes:
        said = ", ".join(str(tuple(x.shape)) for x in tensors) or "no tensor"
        raise refusal(
            f"the example inputs must be one microbatch: tensors of one first dimension, not {said}",
            "pass a tuple of what `forward` takes, for example the first microbatch of your data",
        )
    return sizes.pop()


def traced_example(example: Sequence[Any], fixed_batch: bool) -> tuple[Any, ...]:
    """The example to trace with: of two samples where one was given, since export takes a size of 1 for fixed."""
    if fixed_batch or batch_size(example) > 1:
        return tuple(example)
    doubled: tuple[Any, ...] = pytree.tree_map_only(torch.Tensor, lambda x: torch.cat([x, x]), tuple(example))
    return doubled


def trace(model: nn.Module, example: tuple[Any, ...], training: bool, fixed_batch: bool) -> Trace:
    """Exports one mode of the model; the first dimension stays free unless ``fixed_batch``.

    Raises PipeError (P704) for a model that cannot be exported, with the reason and the place.
    """
    try:
        with mode(model, training), quiet_export() as sized:
            return _export(model, example, fixed_batch)
    except Exception as error:
        _refuse_what_does_not_run(model, example, training)
        if not fixed_batch and _exports_with_fixed_batch(model, example, training):
            raise _one_size(batch_size(example), sized, error) from error
        raise _not_traced(error) from error


def _export(model: nn.Module, example: tuple[Any, ...], fixed_batch: bool) -> Trace:
    free = None if fixed_batch else {0: torch.export.Dim("batch", min=1)}
    dimensions = pytree.tree_map(lambda x: free if isinstance(x, torch.Tensor) else None, example)
    return Trace(torch.export.export(model, example, dynamic_shapes=dimensions, strict=False).module())


def _refuse_what_does_not_run(model: nn.Module, example: tuple[Any, ...], training: bool) -> None:
    try:
        with torch.no_grad(), torch.random.fork_rng(), mode(model, training):
            functional_call(model, {name: buffer.clone() for name, buffer in model.named_buffers()}, example)
    except Exception as error:
        message = f"the model does not run on the example: {type(error).__name__}: {first_line(error)}"
        raise refusal(message, "pass one microbatch, as a tuple of what `forward` takes", user_places(error)) from error


def _one_size(size: int, places: Sequence[str], error: Exception) -> Exception:
    return refusal(
        f"the model's forward does not fit microbatches of every size, only some like the example's {size}: "
        f"{first_line(error)}",
        "derive every size from the inputs (`x.shape[0]`, -1 in `view`), or pass `fixed_batch=True` "
        "to train with microbatches of exactly the example's size",
        tuple(dict.fromkeys(places)),
    )


def _not_traced(error: Exception) -> Exception:
    if "data-dependent" in str(error):
        reason = "the model's control flow depends on the values of its tensors"
        help_ = f"use torch.where or torch.cond in place of the `if`, {LIST_INSTEAD}"
        return refusal(reason, help_, user_places(error))
    message = f"torch.export cannot trace the model: {type(error).__name__}: {first_line(error)}"
    return refusal(message, f"rewrite that, {LIST_INSTEAD}", user_places(error))


def _exports_with_fixed_batch(model: nn.Module, example: tuple[Any, ...], training: bool) -> bool:
    """Whether the size of the batch is all that is in the way; what else is, the first export has said."""
    try:
        with mode(model, training), quiet_export():
            _export(model, example, fixed_batch=True)
    except Exception:
        return False
    return True
