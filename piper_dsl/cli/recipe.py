"""How a run from the command line steps its optimizers: by names of torch, or functions of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from torch.optim import lr_scheduler

from ..diagnostics import Diagnostic, PipeError
from ..runtime.optimizer import OptimizerFactory, SchedulerFactory
from ..runtime.settings import Settings
from .named import named

__all__ = ["Recipe"]

_SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer, int], lr_scheduler.LRScheduler]] = {
    "cosine": lambda optimizer, steps: lr_scheduler.CosineAnnealingLR(optimizer, steps),
    "linear": lambda optimizer, steps: lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps),
}
"""From the learning rate to 0 within a number of optimizer steps."""


@dataclass(frozen=True)
class Recipe:
    """The options of ``piper-dsl run`` about optimizer steps. ``optimizer`` and ``scheduler`` are names, of torch or of
    the form ``module:function``; ``autocast`` is the name of a data type.
    """

    optimizer: str
    learning_rate: float
    scheduler: str | None
    max_norm: float | None
    accumulate: int
    reduction: str
    seed: int
    autocast: str | None

    def make_optimizer(self) -> OptimizerFactory:
        """What makes an optimizer of a stage's parameters. Raises PipeError (P701) for an unknown name."""
        if ":" in self.optimizer:
            return named(self.optimizer, "--optimizer")
        found = getattr(torch.optim, self.optimizer, None)
        if not (isinstance(found, type) and issubclass(found, torch.optim.Optimizer)):
            help_ = "name a class of torch.optim, such as AdamW or SGD, or module:function, which gets the parameters"
            raise PipeError(Diagnostic("P701", f"torch.optim has no optimizer {self.optimizer}", None, help_))
        return _Made(found, self.learning_rate)

    def settings(self, steps: int) -> Settings:
        """All else about a step, in a run of so many steps. Raises PipeError (P701) for an unknown scheduler."""
        autocast = None if self.autocast is None else getattr(torch, self.autocast)
        updates = max(1, steps // max(1, self.accumulate))
        return Settings(
            self.reduction, self.accumulate, self.max_norm, self._make_scheduler(updates), self.seed, autocast
        )

    def _make_scheduler(self, updates: int) -> SchedulerFactory | None:
        if self.scheduler is None:
            return None
        if ":" in self.scheduler:
            return named(self.scheduler, "--scheduler")
        if self.scheduler not in _SCHEDULERS:
            help_ = f"one of {', '.join(_SCHEDULERS)}, or module:function, which gets the optimizer"
            raise PipeError(Diagnostic("P701", f"there is no scheduler `{self.scheduler}`", None, help_))
        make = _SCHEDULERS[self.scheduler]
        return lambda optimizer: make(optimizer, updates)


@dataclass(frozen=True)
class _Made:
    """Makes optimizers of a class of torch; crosses process borders."""

    kind: type[torch.optim.Optimizer]
    learning_rate: float

    def __call__(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        make = cast("Callable[..., torch.optim.Optimizer]", self.kind)
        return make(parameters, lr=self.learning_rate)
