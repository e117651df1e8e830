"""The same model, whole, in one process: what every schedule and target must agree with."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

from .optimizer import OptimizerFactory
from .precision import Precision
from .settings import Settings
from .stage import LossFunction

__all__ = ["WholeModel"]

Data = torch.Tensor | Sequence[torch.Tensor]


class WholeModel:
    """Trains a chain of stages on whole batches: no microbatches, no schedule. Works on a copy."""

    def __init__(
        self,
        stages: Sequence[nn.Module],
        loss_fn: LossFunction,
        optimizer: OptimizerFactory,
        settings: Settings = Settings(),  # noqa: B008
    ) -> None:
        self.stages = copy.deepcopy(list(stages))
        self._loss_fn = loss_fn
        self._settings = settings
        self._precision = Precision(autocast=settings.autocast)
        self._steps = 0
        owned: dict[nn.Parameter, int] = {}
        for number, stage in enumerate(self.stages):
            for parameter in stage.parameters():
                # What stages share is stepped once.
                owned.setdefault(parameter, number)
        self._parameters = [p for p in owned if p.requires_grad]
        parameters = [[p for p in self._parameters if owned[p] == n] for n in range(len(self.stages))]
        self._optimizers = [optimizer(own) for own in parameters if own]
        make = settings.scheduler
        self._schedulers = [make(one) for one in self._optimizers] if make is not None else []

    def step(self, inputs: Data, targets: Data) -> float:
        """One step on a batch, with an optimizer step where gradients do not accumulate further; returns its loss."""
        with self._precision.forward():
            loss = self._loss_fn(*self._forward(_many(inputs)), *_many(targets))
        (loss * self._settings.scale(1)).backward()
        self._steps += 1
        if self._settings.updates(self._steps - 1):
            self._update()
        return loss.item()

    def _update(self) -> None:
        if self._settings.max_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters, self._settings.max_norm)
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        for scheduler in self._schedulers:
            scheduler.step()

    def _forward(self, values: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        for stage in self.stages:
            values = _many(stage(*values))
        return values


def _many(values: Data) -> tuple[torch.Tensor, ...]:
    return (values,) if isinstance(values, torch.Tensor) else tuple(values)
