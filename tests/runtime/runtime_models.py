"""Small stages for the tests of the runtime; the ranks import them by name.

Most take and return ``hidden, *others``: what a stage does not use travels on, so that any chain fits.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

WIDTH = 3
HOT = 1e3
"""An input beyond this makes a :class:`Faulty` stage do what it is there for."""

Tensors = tuple[torch.Tensor, ...]


class Bilinear(nn.Module):
    """Reads two stages and does not treat them alike."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return first - 3 * self.linear(second)


class Mix(nn.Module):
    """A layer on any number of inputs, none of which is treated like another."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(sum(x * (k + 1) for k, x in enumerate(inputs))))


class Noisy(nn.Module):
    """Dropout, and noise that differs from microbatch to microbatch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(self.linear(hidden), 0.5, self.training) + torch.randn(()) * 0.1


class Dense(nn.Module):
    """A layer on the hidden tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor, *others: torch.Tensor) -> Tensors:
        return (torch.tanh(self.linear(hidden)), *others)


class Frozen(Dense):
    """A layer that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(False)


class Bare(nn.Module):
    """No parameters."""

    def forward(self, hidden: torch.Tensor, *others: torch.Tensor) -> Tensors:
        return (torch.sin(hidden), *others)


class Branch(Dense):
    """Sends a second tensor on that needs a gradient."""

    def forward(self, hidden: torch.Tensor, *others: torch.Tensor) -> Tensors:
        return (torch.tanh(self.linear(hidden)), hidden * 2, *others)


class Tag(Dense):
    """Sends an integer tensor and a float tensor on that need no gradient."""

    def forward(self, hidden: torch.Tensor, *others: torch.Tensor) -> Tensors:
        return (self.linear(hidden), (hidden > 0).long().detach(), hidden.detach() + 1, *others)


class Join(nn.Module):
    """Adds up all that arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))

    def forward(self, hidden: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        return torch.tanh(hidden * self.weight + sum(others, start=torch.zeros_like(hidden)))


class Ignore(Dense):
    """Uses the hidden tensor alone and drops the others."""

    def forward(self, hidden: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        return self.linear(hidden)


class TwoBiases(nn.Module):
    """Two parameters whose gradient autograd hands out as one and the same tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(1, WIDTH))
        self.second = nn.Parameter(torch.randn(1, WIDTH))

    def forward(self, hidden: torch.Tensor, *others: torch.Tensor) -> Tensors:
        return (hidden + (self.first + self.second), *others)


class Front(nn.Module):
    """``ids (n,)`` and ``x (n, WIDTH)`` to four tensors: two with a gradient, integers, a float without."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, ids: torch.Tensor, x: torch.Tensor) -> Tensors:
        hidden = torch.tanh(self.linear(x) + self.embedding(ids))
        return hidden, ids, hidden * x, x


class Middle(nn.Module):
    """Those four tensors to the same four."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor, ids: torch.Tensor, extra: torch.Tensor, x: torch.Tensor) -> Tensors:
        return torch.tanh(self.linear(hidden) * x + self.embedding(ids)), ids, extra + hidden, x


class Back(nn.Module):
    """Those four tensors to one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor, ids: torch.Tensor, extra: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.linear(hidden) + extra * x + ids.unsqueeze(1)


def mixed(stages: int) -> list[nn.Module]:
    """A float64 model with four tensors on every boundary; at least two stages."""
    torch.manual_seed(stages)
    return [stage.double() for stage in (Front(), *(Middle() for _ in range(stages - 2)), Back())]


def mixed_batch(size: int, seed: int) -> tuple[Tensors, torch.Tensor]:
    """Inputs and targets for :func:`mixed`."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, (size,), generator=generator)
    x, target = torch.randn(2, size, WIDTH, generator=generator, dtype=torch.float64)
    return (ids, x), target


class Faulty(Dense):
    """Acts up on an input beyond HOT: ``raise`` raises, ``sleep`` leaves its process id in ``mark`` and sleeps."""

    def __init__(self, fault: str, mark: Path | None = None, seconds: float = 300.0) -> None:
        super().__init__()
        self.fault, self.mark, self.seconds = fault, mark, seconds

    def forward(self, hidden: torch.Tensor, *others: torch.Tensor) -> Tensors:
        if hidden.max() > HOT:
            if self.fault == "raise":
                raise ValueError("too hot to handle")
            if self.mark is not None:
                self.mark.with_suffix(".part").write_text(str(os.getpid()))
                self.mark.with_suffix(".part").rename(self.mark)
            time.sleep(self.seconds)
        # Keep the signal that a stage further on waits for.
        return (torch.where(hidden > HOT, hidden, torch.tanh(self.linear(hidden))), *others)


class FaultyOnce(Faulty):
    """Sleeps on its first hot input, and treats later ones, of whatever process, like any other."""

    def forward(self, hidden: torch.Tensor, *others: torch.Tensor) -> Tensors:
        if self.mark is not None and self.mark.exists():
            return (torch.tanh(self.linear(hidden)), *others)
        return super().forward(hidden, *others)


class Carry(Dense):
    """A layer that lets inputs beyond HOT pass, so that they reach a :class:`Faulty` stage."""

    def forward(self, hidden: torch.Tensor, *others: torch.Tensor) -> Tensors:
        return (torch.where(hidden > HOT, hidden, torch.tanh(self.linear(hidden))), *others)


class _Guard(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, hot: bool) -> torch.Tensor:
        ctx.hot = hot
        return weight.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        if ctx.hot:
            raise ValueError("the weight gradient is too hot")
        return gradient, None


class FaultyWeight(nn.Module):
    """Raises in the gradient of its weight, and in that alone, where its input is beyond HOT."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ _Guard.apply(self.weight, bool(hidden.max() > HOT))


class RunningMean(Dense):
    """Keeps a running mean of its inputs in a buffer, and adds it to them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, hidden: torch.Tensor, *others: torch.Tensor) -> Tensors:
        if self.training:
            self.mean.mul_(0.9).add_(hidden.detach().mean(dim=0), alpha=0.1)
        return (torch.tanh(self.linear(hidden) + self.mean), *others)


class Linear(nn.Module):
    """Linear in its weight and without a bias, then dropout: see the test of recomputation."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.float64))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(hidden @ self.weight, 0.5, training=True)


def first_and_last(*tensors: torch.Tensor) -> torch.Tensor:
    """A loss of a chain's hidden tensor and the target, whatever travels between them."""
    return nn.functional.mse_loss(tensors[0], tensors[-1])


def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


class Moody(nn.Module):
    """Returns less than last time where its input is large."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, : WIDTH - int(x.max() > 10)]


class Fickle(Dense):
    """Returns what needs no gradient where its input is large."""

    def forward(self, hidden: torch.Tensor, *others: torch.Tensor) -> Tensors:
        found = torch.tanh(self.linear(hidden))
        return (found.detach() if hidden.max() > 10 else found,)


class Scribble(Join):
    """Changes a tensor that arrives, when another that came with it is kept for the backward."""

    def forward(self, hidden: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        kept = hidden * self.weight
        return torch.tanh(kept + others[-1].mul_(2))
