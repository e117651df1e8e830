"""The same model, whole, in one process: what every schedule and target must agree with."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

from .optimizer import OptimizerFactory
from .stage import LossFunction

__all__ = ["WholeModel"]


class WholeModel:
    """Trains a chain of stages on whole batches: no microbatches, no schedule. Works on a copy."""

    def __init__(self, stages: Sequence[nn.Module], loss_fn: LossFunction, optimizer: OptimizerFactory) -> None:
        self.stages = copy.deepcopy(list(stages))
        self._loss_fn = loss_fn
        owned: dict[nn.Parameter, int] = {}
        for number, stage in enumerate(self.stages):
            for parameter in stage.parameters():
                # What stages share is stepped once.
                owned.setdefault(parameter, number)
        parameters = [[p for p, o in owned.items() if o == n and p.requires_grad] for n in range(len(self.stages))]
        self._optimizers = [optimizer(own) for own in parameters if own]

    def step(
        self, inputs: torch.Tensor | Sequence[torch.Tensor], targets: torch.Tensor | Sequence[torch.Tensor]
    ) -> float:
        """One optimizer step on a batch; returns its mean loss."""
        loss = self._loss_fn(*self._forward(_many(inputs)), *_many(targets))
        loss.backward()
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def _forward(self, values: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        for stage in self.stages:
            values = _many(stage(*values))
        return values


def _many(values: torch.Tensor | Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return (values,) if isinstance(values, torch.Tensor) else tuple(values)
