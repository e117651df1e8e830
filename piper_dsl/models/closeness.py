"""Whether two ways to compute a tensor agree, but for rounding."""

from __future__ import annotations

import torch

__all__ = ["difference", "largest", "tolerance"]

_TOLERANCE = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.float32: 1e-4, torch.complex64: 1e-4}
_COARSE = 5e-2
"""Far above rounding, far below a forgotten term."""


def tolerance(dtype: torch.dtype) -> float:
    """The largest difference that rounding explains, as a part of the largest value."""
    return _TOLERANCE.get(dtype, _COARSE)


def largest(value: torch.Tensor) -> float:
    """The largest absolute value; 0 for an empty tensor."""
    return float(_finite(value).abs().max()) if value.numel() else 0.0


def difference(wanted: torch.Tensor, found: torch.Tensor | None, scale: float | None = None) -> float:
    """The largest difference, as a part of ``scale``, by default the largest wanted value; infinite for other shapes.

    No tensor is as good as zeros. What is not a number, or infinite, agrees with its like.
    """
    if found is None:
        return float(largest(wanted) > 0)
    if wanted.shape != found.shape or wanted.dtype != found.dtype:
        return float("inf")
    one, other = _finite(wanted), _finite(found)
    if not one.numel() or torch.equal(one, other):
        return 0.0
    least = torch.finfo(torch.float64).tiny
    return float((one - other).abs().max()) / max(largest(one) if scale is None else scale, least)


def _finite(value: torch.Tensor) -> torch.Tensor:
    dense = value if value.layout is torch.strided else value.to_dense()
    return dense.to(torch.complex128 if value.is_complex() else torch.float64).nan_to_num()
