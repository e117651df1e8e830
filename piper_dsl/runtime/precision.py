"""Mixed precision: what forwards and losses compute in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

__all__ = ["Precision"]


@dataclass(frozen=True)
class Precision:
    """``autocast`` is what torch.autocast computes in on a ``device``; None leaves it to the model.

    Backwards run outside of it: autograd computes a gradient in the data type of its forward. bfloat16 has the
    exponents of float32, so losses need no scaling.
    """

    device: str = "cpu"
    autocast: torch.dtype | None = None

    def forward(self) -> AbstractContextManager[object]:
        """Around a forward and its loss."""
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(torch.device(self.device).type, self.autocast)
