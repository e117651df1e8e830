"""What travels between stages: tensors, and whose they are."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["Message"]


@dataclass(frozen=True, eq=False)
class Message:
    """The output of a stage for its successor, or the gradients of a stage's inputs for its predecessor.

    ``source`` and ``target`` are stages. ``needs_grad`` says, tensor by tensor, whether a gradient is
    to come back; a message of gradients answers exactly those and has no flags of its own.
    """

    step: int
    source: int
    target: int
    microbatch: int
    tensors: tuple[torch.Tensor, ...]
    needs_grad: tuple[bool, ...] = ()
