"""How a step is computed, beyond the model, the loss and the optimizer."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .optimizer import SchedulerFactory

__all__ = ["AUTOCASTS", "REDUCTIONS", "Settings"]

REDUCTIONS = ("mean", "sum")
AUTOCASTS = (None, torch.bfloat16)


@dataclass(frozen=True)
class Settings:
    """``reduction``: what the loss of a microbatch is over its samples. ``accumulate``: the optimizers step in
    every so-manieth step. ``max_norm``: of the gradients of all ranks together, to which they are clipped.
    ``scheduler`` makes that of an optimizer's learning rate. ``seed``: of the stages' random numbers.
    ``autocast``: the data type in which torch.autocast has forwards and losses compute what it can; None: as it is.
    """

    reduction: str = "mean"
    accumulate: int = 1
    max_norm: float | None = None
    scheduler: SchedulerFactory | None = None
    seed: int = 0
    autocast: torch.dtype | None = None

    def scale(self, microbatches: int) -> float:
        """What every microbatch's loss is multiplied with before it goes backward."""
        return 1.0 / (microbatches * self.accumulate) if self.reduction == "mean" else 1.0

    def updates(self, step: int) -> bool:
        """Whether the optimizers step in a step, counted from 0."""
        return (step + 1) % self.accumulate == 0
