"""Parameters that several ranks hold: copies of a stage, and stages that are tied.

Every rank has a parameter of its own. Before any of them is stepped, their gradients are summed, so that
all make the same step and stay equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from ..ir.placement import Placement

__all__ = ["Place", "SharedGradients", "SharedGroup", "shared_groups", "shared_places", "sum_shared", "total"]

Place = tuple[int, int, str]
"""Rank, stage and name of a parameter."""


@dataclass(frozen=True)
class SharedGroup:
    """Parameters that the same ranks hold, of one dtype, as one of these ranks knows them.

    ``number`` is the same on all of them, as is the order of ``members``: stage and name on this rank.
    """

    number: int
    ranks: tuple[int, ...]
    members: tuple[tuple[int, str], ...]


def shared_places(stages: Sequence[nn.Module], placement: Placement) -> dict[int, list[Place]]:
    """By parameter (its id): all its places, where it has more than one. Tied stages hold the same object."""
    places: dict[int, list[Place]] = {}
    for stage, module in enumerate(stages):
        for name, parameter in module.named_parameters():
            found = places.setdefault(id(parameter), [])
            found += [(rank, stage, name) for rank in placement.copies[stage]]
    return {key: sorted(found) for key, found in places.items() if len(found) > 1}


def shared_groups(stages: Sequence[nn.Module], placement: Placement) -> list[list[SharedGroup]]:
    """Per rank, the groups it belongs to. A rank that holds a parameter twice counts as one place."""
    parameters = {id(p): p for stage in stages for p in stage.parameters()}
    members: dict[tuple[tuple[int, ...], torch.dtype], list[dict[int, tuple[int, str]]]] = {}
    for key, places in shared_places(stages, placement).items():
        by_rank = {rank: (stage, name) for rank, stage, name in reversed(places)}
        if len(by_rank) > 1 and parameters[key].requires_grad:
            members.setdefault((tuple(sorted(by_rank)), parameters[key].dtype), []).append(by_rank)
    groups: list[list[SharedGroup]] = [[] for _ in range(placement.ranks)]
    for number, ((ranks, _), found) in enumerate(members.items()):
        for rank in ranks:
            groups[rank].append(SharedGroup(number, ranks, tuple(by_rank[rank] for by_rank in found)))
    return groups


class SharedGradients:
    """The gradients of one group on one rank, as one flat tensor that can be summed over the group."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self._sizes = [p.numel() for p in parameters]

    def pack(self) -> torch.Tensor:
        """All gradients, then for each whether there is one: 1, or 0 and the gradient is zeros."""
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        found = [float(p.grad is not None) for p in self._parameters]
        return torch.cat([*(g.flatten() for g in grads), torch.tensor(found).to(grads[0])])

    def unpack(self, total: torch.Tensor) -> None:
        """Takes the sums as gradients; where no rank had one, there is none."""
        *grads, found = total.split([*self._sizes, len(self._sizes)])
        for parameter, gradient, count in zip(self._parameters, grads, found.tolist(), strict=True):
            parameter.grad = gradient.reshape(parameter.shape).clone() if count else None


def total(parts: Iterable[torch.Tensor]) -> torch.Tensor:
    """The sum of what :meth:`SharedGradients.pack` gave on every rank, in the order of ranks."""
    first, *others = parts
    return sum(others, start=first)


def sum_shared(
    gradients: Sequence[Mapping[int, Mapping[str, torch.Tensor]]], places: Iterable[Sequence[Place]]
) -> dict[int, dict[str, torch.Tensor]]:
    """The gradients of all ranks by stage and name; those of one parameter are summed over its ranks."""
    merged = {s: dict(own) for rank in gradients for s, own in sorted(rank.items())}
    for found in places:
        by_rank = {rank: (stage, name) for rank, stage, name in found}
        parts = [gradients[rank].get(stage, {}).get(name) for rank, (stage, name) in by_rank.items()]
        given = [part for part in parts if part is not None]
        for _, stage, name in found if given else ():
            merged[stage][name] = total(given)
    return {stage: merged[stage] for stage in sorted(merged)}
