"""Do I and W give what B gives? Asked of every stage once, on the first microbatch that goes back through it.

The gradients of B are those of one pass over the microbatch's own graph, which is kept; nothing else is touched.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch.autograd.graph import GradientEdge

from ..models.closeness import difference, largest, tolerance
from .failure import CodedError
from .halves import Again, Apart, Halves

__all__ = ["SplitDiffers", "checked_halves"]

Tensors = tuple[torch.Tensor, ...]
Gradients = Sequence[torch.Tensor | None]

_log = logging.getLogger("piper_dsl")

_SMALL = 1e-3
"""A gradient below this part of the stage's largest is compared with that part: it may be rounding and nothing else."""


class SplitDiffers(CodedError):
    """A backward that cannot be split: its halves do not add up to the whole."""

    code = "P720"
    help = "write B in place of I and W, or make the stage's backward give the same gradients whenever it runs"


def checked_halves(
    roots: Tensors, seeds: Tensors, leaves: Tensors, parameters: Mapping[str, torch.Tensor], coarse: torch.dtype | None
) -> type[Halves]:
    """The way to split the backward from ``roots``: the one that does no work twice, if it gives what B gives.

    ``coarse`` is a data type of less precision that is computed in on the way. Raises :class:`SplitDiffers`, which
    names the parameter, where no way does.
    """
    names = [*(f"input {number}" for number in range(len(leaves))), *(f"`{name}`" for name in parameters)]
    trained = tuple(parameters.values())
    if not roots or not names:
        return Apart
    wanted = torch.autograd.grad(roots, (*leaves, *trained), seeds, retain_graph=True, allow_unused=True)
    try:
        found = _tried(Apart, roots, seeds, leaves, trained)
        reason = "it does not give what B gives: is there a hook on a node of autograd?"
    except RuntimeError as error:
        found, reason = (), f"a node of autograd's graph cannot be run alone: {error}"
    if found and next(_differing(wanted, found, coarse), None) is None:
        return Apart
    for number, differs in _differing(wanted, _tried(Again, roots, seeds, leaves, trained), coarse):
        raise SplitDiffers(
            f"the gradient of {names[number]} from I and W differs from that of B by {differs:.1e} of its size"
        )
    _log.warning("W goes through the whole graph once more, which takes longer; without, %s", reason)
    return Again


def _tried(way: type[Halves], roots: Tensors, seeds: Tensors, leaves: Tensors, trained: Tensors) -> Gradients:
    halves = way(roots, seeds, leaves)
    return (*halves.inputs(), *halves.weights(lambda edges, gradients: _through(edges, gradients, trained)))


def _through(edges: Sequence[GradientEdge], gradients: Sequence[torch.Tensor], trained: Tensors) -> Gradients:
    if not edges or not trained:
        return (None,) * len(trained)
    return torch.autograd.grad(edges, trained, gradients, retain_graph=True, allow_unused=True)


def _differing(wanted: Gradients, found: Gradients, coarse: torch.dtype | None) -> Iterator[tuple[int, float]]:
    """The numbers of gradients that differ by more than rounding, and by what part of their size."""
    least = _SMALL * max((largest(x) for x in wanted if x is not None), default=0.0)
    for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
        if one is None:
            one = torch.zeros_like(other) if other is not None else torch.zeros(())
        allowed = max(tolerance(dtype) for dtype in (one.dtype, coarse) if dtype is not None)
        differs = difference(one, other, max(largest(one), least))
        if differs > allowed:
            yield number, differs
