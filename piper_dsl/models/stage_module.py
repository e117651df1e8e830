"""A stage that was cut out of a model: an ``nn.Module`` with the model's parameters under their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx, nn

__all__ = ["InputShape", "Runnable", "StageModule"]


@dataclass(frozen=True)
class InputShape:
    """What the first stage takes: a size per dimension, None where it is free."""

    name: str
    sizes: tuple[int | None, ...]
    dtype: torch.dtype

    def check(self, x: torch.Tensor) -> None:
        """Raises ValueError for a tensor that the model was not traced for."""
        fits = x.dim() == len(self.sizes) and all(a in (None, b) for a, b in zip(self.sizes, x.shape, strict=True))
        if not fits or x.dtype != self.dtype:
            wanted = ", ".join("any" if size is None else str(size) for size in self.sizes)
            raise ValueError(
                f"the model was cut for an input `{self.name}` of shape ({wanted}) and {self.dtype}, "
                f"like the example; this one has {tuple(x.shape)} and {x.dtype}"
            )


@dataclass(frozen=True, eq=False)
class Runnable:
    """A graph, and where the tensors are that it is called with before the inputs: a module and a name in it."""

    graph: fx.GraphModule
    slots: tuple[tuple[nn.Module, str], ...]


class StageModule(nn.Module):
    """Runs its part of the model, in the mode it is in.

    Parameters and buffers have their names in the whole model, so ``load_state_dict(whole, strict=False)``
    takes them from a checkpoint of it. ``inputs`` says how many tensors the stage takes, ``runnables`` what it runs,
    in training mode and in evaluation mode.
    """

    def __init__(self, inputs: Mapping[bool, int], shapes: Sequence[InputShape] = ()) -> None:
        super().__init__()
        self.runnables: dict[bool, Runnable] = {}
        self._inputs = dict(inputs)
        self._shapes = tuple(shapes)

    def hold(self, name: str, tensor: torch.Tensor, persistent: bool) -> tuple[nn.Module, str]:
        """Registers a parameter or buffer under a qualified name, as the same object; returns where it is."""
        path, _, leaf = name.rpartition(".")
        owner: nn.Module = self
        for step in path.split(".") if path else ():
            if step not in owner._modules:
                owner.add_module(step, nn.Module())
            child = owner._modules[step]
            assert child is not None
            owner = child
        if isinstance(tensor, nn.Parameter):
            owner.register_parameter(leaf, tensor)
        else:
            owner.register_buffer(leaf, tensor, persistent)
        return owner, leaf

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The tensors of this stage for the next; those of the model for the last stage."""
        wanted = self._inputs[self.training]
        if len(inputs) != wanted:
            raise ValueError(f"this stage takes {wanted} tensors, not {len(inputs)}; are all stages in one mode?")
        for shape, x in zip(self._shapes, inputs, strict=False):
            shape.check(x)
        runnable = self.runnables[self.training]
        held = [getattr(owner, leaf) for owner, leaf in runnable.slots]
        outputs: tuple[torch.Tensor, ...] = runnable.graph(inputs[0].device, *held, *inputs)
        return outputs[0] if len(outputs) == 1 else outputs
