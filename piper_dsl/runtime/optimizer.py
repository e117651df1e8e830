"""The parameters of one stage: what a step adds to their gradients, and the optimizer that steps them.

A step is kept or dropped as a whole, on all ranks alike. While it runs, the gradients of steps before it
lie aside; they are added to what it found once every rank knows that nothing went wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

__all__ = ["OptimizerFactory", "StageOptimizer"]

OptimizerFactory = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class StageOptimizer:
    """Gradients and optimizer of ``parameters``; without ``make``, or without parameters, nothing steps them."""

    def __init__(self, parameters: Sequence[nn.Parameter], make: OptimizerFactory | None) -> None:
        self.parameters = list(parameters)
        self._aside: list[torch.Tensor | None] | None = None
        self._optimizer = make(self.parameters) if make and self.parameters else None

    def begin(self) -> None:
        """Starts a step: lays the gradients found so far aside."""
        self._aside = [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None

    def keep(self) -> None:
        """The step is good: its gradients are added to those laid aside."""
        for parameter, before in zip(self.parameters, self._aside or (), strict=False):
            if before is not None:
                parameter.grad = before if parameter.grad is None else before.add_(parameter.grad)
        self._aside = None

    def drop(self) -> None:
        """The step is not: its gradients are forgotten, and those laid aside are back."""
        for parameter, before in zip(self.parameters, self._aside or (), strict=False):
            parameter.grad = before
        self._aside = None

    def step(self) -> None:
        """Steps the optimizer and clears the gradients. Nothing to do where there is no optimizer."""
        if self._optimizer is not None:
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
