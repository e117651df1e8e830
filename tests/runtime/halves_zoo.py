"""Modules whose backward is hard to divide: what leads to inputs and what to parameters is entangled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

WIDTH = 4
Tensors = tuple[torch.Tensor, ...]


class _Function(nn.Module):
    """A module of a plain function and some layers."""

    def __init__(self, forward: Callable[..., Any], **layers: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self._function = forward

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self._function(self, *inputs)


def _linear() -> nn.Linear:
    return nn.Linear(WIDTH, WIDTH)


def _weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*(shape or (WIDTH, WIDTH))))


class _Dense(torch.autograd.Function):
    """A layer in Python, as fused kernels are."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.scale = scale
        return scale * x @ weight

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, torch.Tensor]:
        x, weight = ctx.saved_tensors
        return ctx.scale * gradient @ weight.T, None, ctx.scale * x.T @ gradient


class _Two(torch.autograd.Function):
    """Two outputs, of which one may get no gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> Tensors:
        ctx.save_for_backward(x, weight)
        return x * weight, x + weight

    @staticmethod
    def backward(ctx: Any, product: torch.Tensor, total: torch.Tensor) -> Tensors:
        x, weight = ctx.saved_tensors
        return product * weight + total, (product * x + total).sum(0)


def _hooked(self: Any, x: torch.Tensor) -> torch.Tensor:
    hidden = self.first(x)
    hidden.register_hook(lambda gradient: 3 * gradient)
    weight = self.weight * 2
    weight.register_hook(lambda gradient: gradient.clamp(-1, 1))
    return self.second(torch.tanh(hidden @ weight))


def _param_hooks() -> nn.Module:
    module = nn.Sequential(_linear(), nn.Tanh(), _linear())
    for parameter in module.parameters():
        parameter.register_hook(lambda gradient: gradient.clamp(-0.3, 0.3) * 2)
    return module


def _module_hooks() -> nn.Module:
    module = nn.Sequential(_linear(), nn.Tanh(), _linear())
    module[1].register_full_backward_hook(lambda _, gradients, __: tuple(2 * g for g in gradients))
    return module


def _in_place(self: Any, x: torch.Tensor) -> torch.Tensor:
    hidden = self.first(x)
    hidden.mul_(self.weight).add_(1)
    hidden[:, 1:3] += self.bias
    part = hidden[:, :2]
    part.mul_(self.weight[:2])
    return self.second(torch.tanh(hidden))


def _used_often(self: Any, x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = self.norm(torch.tanh(self.layer(x)) + x)
    return x


def _made_weights(self: Any, x: torch.Tensor) -> torch.Tensor:
    weight = torch.tanh(self.weight @ self.weight.T)
    return torch.tanh(x @ weight + self.weight[0]) @ weight.sin() + weight.sum()


def _python_between(self: Any, x: torch.Tensor) -> torch.Tensor:
    x = _Dense.apply(self.first(x), 0.5, self.weight)
    x = self.second(torch.tanh(x))
    return _Dense.apply(torch.tanh(x), 2.0, self.weight) * self.bias


def _several(self: Any, x: torch.Tensor) -> Tensors:
    return self.weight * 2, self.weight, torch.sin(x), x * self.weight, x, (x.detach() > 0).long()


def _parts(self: Any, x: torch.Tensor) -> torch.Tensor:
    one, other = self.wide(x).chunk(2, dim=1)
    return one * torch.sigmoid(other) + torch.stack([x * self.weight, x + self.weight]).unbind()[0]


def _precisions(self: Any, x: torch.Tensor) -> torch.Tensor:
    return (x.float() * self.single + 1).double() @ self.weight


def _complex(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(torch.fft.fft(x * self.weight) * torch.complex(self.weight, x)).flatten(1)


def _recurrent(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.cell(x.unsqueeze(1).expand(-1, 3, -1) * self.weight)[0].flatten(1)


def _attention(self: Any, x: torch.Tensor) -> torch.Tensor:
    x = x.unsqueeze(0)
    return self.attention(x, x, x, need_weights=False)[0].squeeze(0)


def _vector() -> nn.Parameter:
    return _weight(WIDTH)


ZOO: dict[str, Callable[[], nn.Module]] = {
    "chain": lambda: nn.Sequential(_linear(), nn.Tanh(), _linear()),
    "three dimensions": lambda: _Function(lambda self, x: self.layer(x.view(2, 3, -1)).sum(1), layer=_linear()),
    "used often": lambda: _Function(_used_often, layer=_linear(), norm=nn.LayerNorm(WIDTH)),
    "weights are made": lambda: _Function(_made_weights, weight=_weight()),
    "in place": lambda: _Function(_in_place, first=_linear(), second=_linear(), weight=_vector(), bias=_weight(2)),
    "hooks on values": lambda: _Function(_hooked, first=_linear(), second=_linear(), weight=_weight()),
    "hooks on parameters": _param_hooks,
    "hooks on modules": _module_hooks,
    "Python's functions": lambda: _Function(
        _python_between, first=_linear(), second=_linear(), weight=_weight(), bias=_vector()
    ),
    "one of two outputs": lambda: _Function(lambda self, x: _Two.apply(x, self.weight)[1] * 2, weight=_vector()),
    "several outputs": lambda: _Function(_several, weight=_vector()),
    "parts": lambda: _Function(_parts, wide=nn.Linear(WIDTH, 2 * WIDTH), weight=_vector()),
    "precisions": lambda: _Function(_precisions, single=_vector(), weight=_weight()),
    "complex": lambda: _Function(_complex, weight=_vector()),
    "recurrent": lambda: _Function(_recurrent, cell=nn.LSTM(WIDTH, WIDTH, batch_first=True), weight=_vector()),
    "attention": lambda: _Function(_attention, attention=nn.MultiheadAttention(WIDTH, 2)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, WIDTH)), nn.Conv1d(1, 2, 3), nn.BatchNorm1d(2), nn.ReLU(inplace=True), nn.Flatten()
    ),
    "parametrized": lambda: nn.Sequential(parametrizations.weight_norm(_linear()), nn.Tanh(), _linear()),
    "checkpointed": lambda: _Function(
        lambda self, x: checkpoint(self.inner, x, use_reentrant=False) + x,
        inner=nn.Sequential(_linear(), nn.Tanh(), _linear()),
    ),
    "frozen": lambda: nn.Sequential(_linear(), _linear().requires_grad_(False), nn.Tanh(), _linear()),
    "no parameters": lambda: nn.Tanh(),
    "input unused": lambda: _Function(lambda self, x: x.detach() @ self.weight, weight=_weight()),
}
