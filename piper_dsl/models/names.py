"""The names of a model's tensors, and which of them a stage takes."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from .build import Part
from .stage_module import Runnable, StageModule
from .trace import Trace

__all__ = ["Names"]


class Names:
    """Every parameter and buffer of a model under all its names: a tied weight has several."""

    def __init__(self, model: nn.Module) -> None:
        self._persistent = set(model.state_dict(keep_vars=True))
        self._tensors: dict[str, torch.Tensor] = {
            **dict(model.named_parameters(remove_duplicate=False)),
            **dict(model.named_buffers(remove_duplicate=False)),
        }
        self._names: dict[int, list[str]] = {}
        for name, tensor in self._tensors.items():
            self._names.setdefault(id(tensor), []).append(name)

    def hold(self, stage: StageModule, trace: Trace, part: Part) -> Runnable:
        """Gives a stage the tensors that its graph uses, and the graph their places in it."""
        slots = []
        for target, users in zip(part.targets, part.users, strict=True):
            tensor = trace.attribute(target)
            own = self._of(tensor, users) or [f"_constant_{target.replace('.', '_')}"]
            places = [stage.hold(name, tensor, name in self._persistent) for name in own]
            slots.append(places[0])
        return Runnable(part.graph, tuple(slots))

    def _of(self, tensor: torch.Tensor, users: frozenset[str]) -> list[str]:
        """Its names inside the layers that use it; where it is used elsewhere alone, its first name."""
        names = self._names.get(id(tensor), [])
        return [name for name in names if name.rpartition(".")[0] in users] or names[:1]

    def hold_unused(self, stages: list[StageModule]) -> None:
        """Gives what no forward uses to the stage with the nearest name, so that state dicts stay whole."""
        held = {name: stage for stage in stages for name in stage.state_dict(keep_vars=True)}
        for name in sorted(self._persistent & self._tensors.keys() - held.keys()):
            nearest = max(held, key=partial(_common, name), default="")
            held.get(nearest, stages[0]).hold(name, self._tensors[name], persistent=True)


def _common(one: str, other: str) -> int:
    """How many parts two qualified names share from the left."""
    count = 0
    for left, right in zip(one.split("."), other.split("."), strict=False):
        if left != right:
            break
        count += 1
    return count
