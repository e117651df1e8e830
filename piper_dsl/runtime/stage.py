"""One stage on one rank: a module, and what it holds of every microbatch."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.autograd.graph import GradientEdge

from .halves import Halves
from .halves_check import checked_halves
from .precision import Precision
from .randomness import seed_generators

__all__ = ["LossFunction", "Stage", "as_tuple", "loss_of"]

Tensors = tuple[torch.Tensor, ...]
LossFunction = Callable[..., torch.Tensor]


@dataclass(eq=False)
class _Held:
    """What a stage keeps of a microbatch from its forward to the end of its backward."""

    inputs: Tensors
    outputs: Tensors = ()
    target: Tensors | None = None
    halves: Halves | None = None


class Stage:
    """Runs a module on microbatches, forward and backward, in any order the schedule asks for.

    ``scale`` multiplies the loss of every microbatch, so that accumulated gradients are those of the
    mean over the whole batch. A stage that is not ``trained`` runs without autograd. Of the ``recomputed``
    microbatches it keeps only the inputs until R. Random numbers follow from ``seed``, the step, the stage's
    ``number`` and the microbatch. Forwards and losses compute in ``precision``.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        number: int = 0,
        loss_fn: LossFunction | None = None,
        seed: int = 0,
        precision: Precision = Precision(),  # noqa: B008
        scale: float = 1.0,
        trained: bool = True,
        recomputed: Container[int] = (),
    ) -> None:
        self.module = module
        self.losses: dict[int, torch.Tensor] = {}
        self._number = number
        self._seed = seed
        self._precision = precision
        self._step = 0
        self._loss_fn = loss_fn
        self._scale = scale
        self._trained = trained
        self._recomputed = recomputed
        self._held: dict[int, _Held] = {}
        self._buffers: list[torch.Tensor] = []
        self._modes: list[tuple[nn.Module, bool]] = []
        self._active = trained
        self._halves: type[Halves] | None = None
        self.parameters = [p for p in module.parameters() if p.requires_grad]

    @property
    def held(self) -> int:
        """How many microbatches the stage holds something of."""
        return len(self._held)

    def forward(
        self, microbatch: int, inputs: Tensors, needs_grad: Iterable[bool], target: Tensors | None
    ) -> tuple[Tensors, tuple[bool, ...]]:
        """Runs the module; returns its outputs, outside of autograd, and which of them need a gradient.

        Where the stage has a loss, that is its only output.
        """
        leaves = tuple(x.detach().requires_grad_(flag) for x, flag in zip(inputs, needs_grad, strict=True))
        held = _Held(leaves, target=target)
        recomputed = self._active and microbatch in self._recomputed
        with torch.set_grad_enabled(self._active):
            outputs = self._run(microbatch, held)
        if self._active:
            # Under recomputation the graph is built, so that its needs are known, and dropped here.
            held.outputs = () if recomputed else outputs
            self._held[microbatch] = held
        return tuple(x.detach() for x in outputs), tuple(x.requires_grad for x in outputs)

    def recompute(self, microbatch: int) -> None:
        """Runs the forward again, under the random numbers of the first time, for the backward to come."""
        held = self._held[microbatch]
        with torch.enable_grad():
            held.outputs = self._run(microbatch, held)

    def _run(self, microbatch: int, held: _Held) -> Tensors:
        seed_generators(self._seed, self._step, self._number, microbatch)
        inputs = held.inputs
        if microbatch in self._recomputed:
            # A module may change its input in place; the forward to come again wants it as it was.
            inputs = tuple(x if x.requires_grad else x.clone() for x in inputs)
        with self._precision.forward():
            outputs = as_tuple(self.module(*inputs))
            if self._loss_fn is None:
                return outputs
            trains = any(x.requires_grad for x in (*self.parameters, *held.inputs))
            loss = loss_of(self._loss_fn, (*outputs, *(held.target or ())), trains)
        self.losses[microbatch] = loss.detach()
        return (loss * self._scale,)

    def backward(self, microbatch: int, gradients: Tensors | None) -> Tensors:
        """The whole backward: accumulates parameter gradients, returns those of the inputs that need one."""
        held = self._held[microbatch]
        roots, seeds = self._roots(held, gradients)
        if roots:
            torch.autograd.backward(roots, seeds)
        leaves = [x for x in held.inputs if x.requires_grad]
        return tuple(x.grad if x.grad is not None else torch.zeros_like(x) for x in leaves)

    def backward_input(self, microbatch: int, gradients: Tensors | None) -> Tensors:
        """The input half of the backward; keeps what the weight half needs.

        Raises SplitDiffers where, at the stage's first microbatch, the halves do not add up to the whole.
        """
        held = self._held[microbatch]
        roots, seeds = self._roots(held, gradients)
        leaves = tuple(x for x in held.inputs if x.requires_grad)
        if self._halves is None:
            self._halves = checked_halves(roots, seeds, leaves, self._named_parameters(), self._precision.autocast)
        held.halves = self._halves(roots, seeds, leaves)
        found = held.halves.inputs()
        held.outputs = ()
        return tuple(g if g is not None else torch.zeros_like(x) for g, x in zip(found, leaves, strict=True))

    def _named_parameters(self) -> dict[str, torch.Tensor]:
        return {name: p for name, p in self.module.named_parameters() if p.requires_grad}

    def backward_weight(self, microbatch: int) -> None:
        """The weight half of the backward: accumulates parameter gradients."""
        halves, self._held[microbatch].halves = self._held[microbatch].halves, None
        assert halves is not None
        halves.weights(_accumulate)

    def _roots(self, held: _Held, gradients: Tensors | None) -> tuple[Tensors, Tensors]:
        """The outputs to go back from and the gradient of each; a loss starts with 1."""
        roots = tuple(x for x in held.outputs if x.requires_grad)
        if gradients is None:
            return roots, tuple(torch.ones_like(x) for x in roots)
        if len(gradients) != len(roots):
            raise ValueError(f"{len(roots)} outputs need a gradient, but {len(gradients)} gradients arrived")
        return roots, gradients

    def begin(self, step: int, training: bool) -> None:
        """Starts a step: forgets what an unfinished one left behind, and remembers the module's buffers.

        In a step that is not ``training`` the module is in its mode for evaluation.
        """
        self._step = step
        self._active = self._trained and training
        for module, mode in self._modes:
            module.training = mode
        self._modes = [] if training else [(module, module.training) for module in self.module.modules()]
        if not training:
            self.module.eval()
        self.losses.clear()
        self._held.clear()
        self._buffers = [buffer.clone() for buffer in self.module.buffers()]

    def undo(self) -> None:
        """Forgets the step: nothing is held, and the module's buffers (running means, say) are what they were."""
        self.losses.clear()
        self._held.clear()
        with torch.no_grad():
            for buffer, before in zip(self.module.buffers(), self._buffers, strict=True):
                buffer.copy_(before)

    def free(self, microbatch: int) -> None:
        """Drops what is still held of a microbatch."""
        self._held.pop(microbatch, None)


def _accumulate(edges: Sequence[GradientEdge], gradients: Sequence[torch.Tensor]) -> None:
    if edges:
        torch.autograd.backward(edges, gradients)


def as_tuple(outputs: object) -> Tensors:
    """The outputs of a module as a tuple of tensors; TypeError for anything else."""
    parts = tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)
    if not parts:
        raise TypeError("a stage returns a tensor or a tuple of tensors, not an empty tuple")
    for part in parts:
        if not isinstance(part, torch.Tensor):
            raise TypeError(f"a stage returns a tensor or a tuple of tensors, not {_described(part)}")
    return parts


def loss_of(loss_fn: LossFunction, values: Tensors, trains: bool) -> torch.Tensor:
    """The loss of a microbatch. ``trains``: what it is computed from needs a gradient.

    Raises TypeError where it is not a number, and ValueError where nothing would be trained by it.
    """
    loss = loss_fn(*values)
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        raise TypeError(f"the loss must be one number in a tensor, not {_described(loss)}")
    if torch.is_grad_enabled() and trains and not loss.requires_grad:
        raise ValueError("the loss has no gradient, although what it is computed from is trained: is it detached?")
    return loss


def _described(value: object) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
