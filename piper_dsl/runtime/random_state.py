"""The state of torch's random numbers, on the CPU and on the GPU in use."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["RandomState"]


@dataclass(frozen=True, eq=False)
class RandomState:
    """What the next random numbers depend on; ``cuda`` is None where no GPU is in use."""

    cpu: torch.Tensor
    cuda: torch.Tensor | None

    @classmethod
    def now(cls) -> RandomState:
        """The state at this moment."""
        return cls(torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None)

    def restore(self) -> None:
        """Makes the next random numbers those that followed :meth:`now`."""
        torch.set_rng_state(self.cpu)
        if self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda)
