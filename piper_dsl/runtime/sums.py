"""The gradients of parameters that several ranks hold, summed over these ranks: in few flat tensors, in the background.

A sum is started where the schedule says REDUCE_GRAD, else at the end of the step, and taken once all ranks are known
to be well. Every rank of a group starts its sum, whatever happens to it, so that none waits for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import nn

from .shared import SharedGroup

__all__ = ["FlatGradients", "SharedSums", "Sums"]

Gradient = Callable[[nn.Parameter], torch.Tensor | None]


class Sums(Protocol):
    """Adds up tensors over the ranks of a group. These start a sum in one order, and take it in any."""

    def start(self, group: SharedGroup, part: torch.Tensor) -> None:
        """Begins to add ``part`` to those of the others, and does not wait; ``part`` is given away."""

    def take(self, group: SharedGroup) -> torch.Tensor:
        """Waits for the sum; it belongs to the caller."""

    def forget(self, group: SharedGroup) -> None:
        """What was started is not wanted."""


class FlatGradients:
    """The gradients of parameters of one dtype as one flat tensor."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self._sizes = [p.numel() for p in parameters]

    def pack(self, gradient: Gradient) -> torch.Tensor:
        """All gradients, then for each whether there is one: 1, or 0 and the gradient is zeros."""
        found = [gradient(p) for p in self._parameters]
        flat = [_dense(g, p).flatten() for g, p in zip(found, self._parameters, strict=True)]
        return torch.cat([*flat, torch.tensor([float(g is not None) for g in found]).to(flat[0])])

    def unpack(self, total: torch.Tensor) -> None:
        """Takes the parts of a sum as gradients; where no rank had one, there is none."""
        *grads, found = total.split([*self._sizes, len(self._sizes)])
        for parameter, gradient, count in zip(self._parameters, grads, found.tolist(), strict=True):
            parameter.grad = gradient.view(parameter.shape) if count else None


def _dense(gradient: torch.Tensor | None, parameter: nn.Parameter) -> torch.Tensor:
    if gradient is None:
        return torch.zeros_like(parameter)
    return gradient.to_dense() if gradient.is_sparse else gradient


class SharedSums:
    """The sums that a rank takes part in; ``connection`` is what carries them."""

    def __init__(self, groups: Mapping[int, tuple[SharedGroup, FlatGradients]]) -> None:
        self.connection: Sums | None = None
        self._groups = groups
        self._started: set[int] = set()

    def start(self, stage: int | None, gradient: Gradient) -> None:
        """Starts the sums of a stage that are not yet started; of all stages where it is None."""
        for number, (group, flat) in self._groups.items():
            if number not in self._started and stage in (None, group.stage):
                self._started.add(number)
                self._carrier.start(group, flat.pack(gradient))

    def take(self) -> None:
        """Waits for what was started; the sums become the parameters' gradients."""
        for number in sorted(self._started):
            group, flat = self._groups[number]
            flat.unpack(self._carrier.take(group))
        self._started.clear()

    def drop(self) -> None:
        """Forgets what was started."""
        for number in self._started:
            self._carrier.forget(self._groups[number][0])
        self._started.clear()

    @property
    def _carrier(self) -> Sums:
        assert self.connection is not None
        return self.connection
