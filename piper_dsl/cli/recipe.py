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
from .run_options import Updating

__all__ = ["make_optimizer", "make_settings"]

_SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer, int], lr_scheduler.LRScheduler]] = {
    "cosine": lambda optimizer, steps: lr_scheduler.CosineAnnealingLR(optimizer, steps),
    "linear": lambda optimizer, steps: lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps),
}
"""From the learning rate to 0 within a number of optimizer steps."""


def make_optimizer(options: Updating) -> OptimizerFactory:
    """What makes an optimizer of a stage's parameters. Raises PipeError (P701) for an unknown name."""
    if ":" in options.optimizer:
        return named(options.optimizer, "--optimizer")
    found = getattr(torch.optim, options.optimizer, None)
    if not (isinstance(found, type) and issubclass(found, torch.optim.Optimizer)):
        help_ = "name a class of torch.optim, such as AdamW or SGD, or module:function, which gets the parameters"
        raise PipeError(Diagnostic("P701", f"torch.optim has no optimizer {options.optimizer}", None, help_))
    return _Made(found, options.learning_rate)


def make_settings(options: Updating, steps: int) -> Settings:
    """All else about a step, in a run of so many steps. Raises PipeError (P701) for an unknown scheduler."""
    updates = max(1, steps // options.accumulate)
    return Settings(
        reduction=options.reduction.value,
        accumulate=options.accumulate,
        max_norm=options.max_norm,
        scheduler=None if options.scheduler is None else _scheduler(options.scheduler, updates),
        seed=options.seed,
        autocast=None if options.autocast is None else getattr(torch, options.autocast.value),
    )


def _scheduler(name: str, updates: int) -> SchedulerFactory:
    if ":" in name:
        return named(name, "--scheduler")
    if name not in _SCHEDULERS:
        help_ = f"one of {', '.join(_SCHEDULERS)}, or module:function, which gets the optimizer"
        raise PipeError(Diagnostic("P701", f"there is no scheduler `{name}`", None, help_))
    make = _SCHEDULERS[name]
    return lambda optimizer: make(optimizer, updates)


@dataclass(frozen=True)
class _Made:
    """Makes optimizers of a class of torch; crosses process borders."""

    kind: type[torch.optim.Optimizer]
    learning_rate: float

    def __call__(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        make = cast("Callable[..., torch.optim.Optimizer]", self.kind)
        return make(parameters, lr=self.learning_rate)
