"""A backward in two halves gives what it gives whole, does nothing twice, and is checked before it is used."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from halves_zoo import WIDTH, ZOO, Tensors
from runtime_reference import EXACT, only, written
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import piper_dsl as piper
from piper_dsl.runtime.halves import Again, Apart, Halves

SAMPLES = 6


def _made(name: str) -> nn.Module:
    torch.manual_seed(0)
    module = ZOO[name]().double()
    if name == "precisions":
        module.single = nn.Parameter(module.single.detach().float())
    return module


def _forward(module: nn.Module, needs_grad: bool = True) -> tuple[Tensors, Tensors, Tensors]:
    """Roots, seeds and leaves of one microbatch; the same in every call."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, WIDTH, dtype=torch.float64, generator=generator).requires_grad_(needs_grad)
    outputs = module(x)
    roots = tuple(o for o in (outputs if isinstance(outputs, tuple) else (outputs,)) if o.requires_grad)
    seeds = tuple(torch.randn(o.shape, dtype=o.dtype, generator=generator) for o in roots)
    return roots, seeds, (x,) if needs_grad else ()


def _whole(module: nn.Module, needs_grad: bool) -> dict[str, torch.Tensor | None]:
    roots, seeds, leaves = _forward(module, needs_grad)
    torch.autograd.backward(roots, seeds)
    return _taken(module, [x.grad for x in leaves])


def _divided(module: nn.Module, way: type[Halves], needs_grad: bool) -> dict[str, torch.Tensor | None]:
    halves = way(*_forward(module, needs_grad))
    found = halves.inputs()
    halves.weights(lambda edges, gradients: edges and torch.autograd.backward(edges, gradients))
    return _taken(module, list(found))


def _taken(module: nn.Module, inputs: list[torch.Tensor | None]) -> dict[str, torch.Tensor | None]:
    found = {"input": inputs[0] if inputs else None, **{name: p.grad for name, p in module.named_parameters()}}
    module.zero_grad(set_to_none=True)
    return found


@pytest.mark.parametrize("needs_grad", [True, False], ids=["inner", "first"])
@pytest.mark.parametrize("way", [Apart, Again])
@pytest.mark.parametrize("name", ZOO)
def test_two_halves_are_the_whole(name: str, way: type[Halves], needs_grad: bool) -> None:
    module = _made(name)
    wanted, found = _whole(module, needs_grad), _divided(module, way, needs_grad)
    for key, gradient in wanted.items():
        other = found[key]
        if gradient is None or other is None:
            assert gradient is None or not gradient.any(), key
            assert other is None or not other.any(), key
        else:
            tolerance = EXACT if gradient.dtype == torch.float64 else 1e-6
            torch.testing.assert_close(other, gradient, rtol=tolerance, atol=tolerance)


class _Counted(TorchDispatchMode):
    """Counts the operations that run, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["chain", "used often", "parts", "attention", "convolution", "checkpointed"])
def test_no_gradient_is_computed_twice(name: str) -> None:
    counts = []
    for divided in (False, True):
        roots, seeds, leaves = _forward(_made(name))
        with _Counted() as counted:
            if divided:
                halves = Apart(roots, seeds, leaves)
                halves.inputs()
                halves.weights(torch.autograd.backward)
            else:
                torch.autograd.backward(roots, seeds)
        counts.append(counted.counts)
    whole, halves_ = counts
    products = ("mm", "bmm", "addmm")
    # What is checkpointed is computed again for either half, up to the last value that is needed.
    again = 1 if name == "checkpointed" else 0
    assert sum(halves_[p] for p in products) == sum(whole[p] for p in products) + again
    if name != "convolution":
        assert halves_["tanh_backward"] == whole["tanh_backward"]


class _Fickle(torch.autograd.Function):
    """Another gradient in every backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.count = 0
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Tensors:
        x, weight = ctx.saved_tensors
        ctx.count += 1
        return gradient * weight, (gradient * x).sum(0) * ctx.count


class Fickle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.weight = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Fickle.apply(self.inner(x), self.weight)


class Hooked(nn.Module):
    """A hook on a node of autograd changes the gradient of a weight: a node that is called by itself has no hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.inner(x)
        if hidden.grad_fn is not None:
            hidden.grad_fn.register_hook(lambda gradients, _: tuple(g if g is None else 3 * g for g in gradients))
        return hidden * 2


class Noisy(nn.Module):
    """Buffers and random numbers, which a check must leave alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def _stepped(stages: list[nn.Module], text: str) -> tuple[float, Any, Any]:
    x, y = torch.randn(2, 8, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).unbind()
    with piper.Pipeline(stages, written(text), loss_fn=nn.functional.mse_loss) as pipeline:
        loss = pipeline.step(x, y)
        return loss, pipeline.gradients(), pipeline.state_dict()


@pytest.mark.parametrize("module", [Noisy, Hooked])
def test_the_check_leaves_no_trace(module: type[nn.Module]) -> None:
    torch.manual_seed(0)
    stages = [module().double(), module().double()]
    found = [
        _stepped(stages, f"ranks 2\nmicrobatches 2\nrank r {{ F[0:2] {back} }}") for back in ("B[0:2]", "I[0:2] W[0:2]")
    ]
    assert found[0][0] == found[1][0]
    for wanted, other in zip(found[0][1:], found[1][1:], strict=True):
        for stage, values in wanted.items():
            for name, value in values.items():
                torch.testing.assert_close(other[stage][name], value, rtol=EXACT, atol=EXACT)


def test_halves_that_are_not_the_whole_are_an_error_that_names_stage_and_parameter() -> None:
    stages = [nn.Linear(WIDTH, WIDTH).double(), Fickle().double()]
    text = "ranks 2\nmicrobatches 2\nrank r { F[0:2] I[0:2] W[0:2] }"
    with pytest.raises(piper.PipeError) as error:
        _stepped(stages, text)
    finding = only(error)
    assert finding.code == "P720"
    assert "rank 1: stage 1, input gradient (I) of microbatch 0: the gradient of `weight`" in finding.message
    assert "differs from that of B" in finding.message
    assert finding.help is not None
    loss, *_ = _stepped(stages, text.replace("I[0:2] W[0:2]", "B[0:2]"))
    assert loss > 0


class Reentrant(nn.Module):
    """Checkpoints in a way that autograd refuses to divide."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, x, use_reentrant=True)


def test_checkpoints_that_cannot_be_divided_say_what_to_write() -> None:
    stages = [nn.Linear(WIDTH, WIDTH).double(), Reentrant().double()]
    with pytest.raises(piper.PipeError, match=r"stage 1, input gradient.*use_reentrant=False"):
        _stepped(stages, "ranks 2\nmicrobatches 2\nrank r { F[0:2] I[0:2] W[0:2] }")
