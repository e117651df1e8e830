"""The parameters of one stage: what a step adds to their gradients, and the optimizer that steps them.

A step is kept or dropped as a whole, on all ranks alike. While it runs, the gradients of steps before it
lie aside; they are added to what it found once every rank knows that nothing went wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

__all__ = ["OptimizerFactory", "SchedulerFactory", "StageOptimizer", "clip_coefficient"]

OptimizerFactory = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
SchedulerFactory = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]


def clip_coefficient(norm: float, max_norm: float) -> float:
    """What gradients of a norm are multiplied with, so that it is at most ``max_norm``; as torch clips them."""
    return min(1.0, max_norm / (norm + 1e-6))


class StageOptimizer:
    """Gradients and optimizer of ``parameters``; without ``make``, or without parameters, nothing steps them.

    ``schedule`` makes the scheduler of its learning rate, which is stepped after it.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        make: OptimizerFactory | None,
        schedule: SchedulerFactory | None = None,
    ) -> None:
        self.parameters = list(parameters)
        self._aside: dict[nn.Parameter, torch.Tensor | None] = {}
        self._optimizer = make(self.parameters) if make and self.parameters else None
        self._scheduler = schedule(self._optimizer) if schedule and self._optimizer else None

    def begin(self) -> None:
        """Starts a step: lays the gradients found so far aside."""
        self._aside = {parameter: parameter.grad for parameter in self.parameters}
        for parameter in self.parameters:
            parameter.grad = None

    def gradient(self, parameter: nn.Parameter) -> torch.Tensor | None:
        """All that was found of a gradient: in this step, and what lies aside."""
        before = self._aside.get(parameter)
        if before is None or parameter.grad is None:
            return parameter.grad if before is None else before
        return before + parameter.grad

    def keep(self) -> None:
        """The step is good: its gradients are added to those laid aside."""
        for parameter, before in self._aside.items():
            if before is not None:
                parameter.grad = before if parameter.grad is None else before.add_(parameter.grad)
        self._aside = {}

    def drop(self) -> None:
        """The step is not: its gradients are forgotten, and those laid aside are back."""
        for parameter, before in self._aside.items():
            parameter.grad = before
        self._aside = {}

    def state(self) -> dict[str, Any]:
        """Everything that the next steps depend on, the parameters themselves apart."""
        return {
            "gradients": [parameter.grad for parameter in self.parameters],
            "optimizer": self._optimizer.state_dict() if self._optimizer else None,
            "scheduler": self._scheduler.state_dict() if self._scheduler else None,
            "kinds": self._kinds(),
        }

    def _kinds(self) -> dict[str, str | None]:
        """What a state depends on: it fits no other optimizer or scheduler."""
        groups = [len(group["params"]) for group in self._optimizer.param_groups] if self._optimizer else []
        return {
            "optimizer": type(self._optimizer).__name__ if self._optimizer else None,
            "parameters by group": ", ".join(map(str, groups)),
            "scheduler": type(self._scheduler).__name__ if self._scheduler else None,
        }

    def differences(self, state: Mapping[str, Any]) -> Iterator[str]:
        """What keeps a state from being taken up, as a reader would say it."""
        theirs = state.get("kinds", {})
        for what, ours in self._kinds().items():
            if ours != theirs.get(what):
                yield f"{what}: {ours or 'none'} here, {theirs.get(what) or 'none'} in the checkpoint"

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`state` gave."""
        for parameter, gradient in zip(self.parameters, state["gradients"], strict=True):
            parameter.grad = None if gradient is None else gradient.to(parameter.device)
        if self._optimizer is not None:
            self._optimizer.load_state_dict(state["optimizer"])
        if self._scheduler is not None:
            self._scheduler.load_state_dict(state["scheduler"])

    def squared_norm(self, others: Container[int]) -> float:
        """The squared norm of the gradients; parameters in ``others`` (ids) count elsewhere."""
        grads = [p.grad for p in self.parameters if p.grad is not None and id(p) not in others]
        return float(sum(torch.linalg.vector_norm(g, dtype=torch.float64).item() ** 2 for g in grads))

    def step(self, scale: float = 1.0) -> None:
        """Steps the optimizer with ``scale`` times the gradients, then the learning rate; clears the gradients."""
        if self._optimizer is None:
            return
        if scale != 1.0:
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(scale)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        if self._scheduler is not None:
            self._scheduler.step()
