"""Parameters that several ranks hold: copies of a stage, and stages that are tied.

Every rank has a parameter of its own. Before any of them is stepped, their gradients are summed, so that
all make the same step and stay equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from ..ir.operations import Kind
from ..ir.placement import Placement
from ..ir.schedule import Schedule

__all__ = ["Place", "SharedGroup", "shared_groups", "shared_places", "sum_shared"]

BUCKET = 32 << 20
"""Bytes of gradients that are summed in one go: many small ones together, and not so many that none is under way
while others are gathered."""

Place = tuple[int, int, str]
"""Rank, stage and name of a parameter."""


@dataclass(frozen=True)
class SharedGroup:
    """Parameters that the same ranks hold, of one dtype, as one of these ranks knows them.

    ``number`` is the same on all of them, as is the order of ``members``: stage and name on this rank. Their
    gradients are summed where the rank meets the REDUCE_GRAD of ``stage``; None: at the end of the step.
    """

    number: int
    ranks: tuple[int, ...]
    stage: int | None
    members: tuple[tuple[int, str], ...]


def shared_places(stages: Sequence[nn.Module], placement: Placement) -> dict[int, list[Place]]:
    """By parameter (its id): all its places, where it has more than one. Tied stages hold the same object."""
    places: dict[int, list[Place]] = {}
    for stage, module in enumerate(stages):
        for name, parameter in module.named_parameters():
            found = places.setdefault(id(parameter), [])
            found += [(rank, stage, name) for rank in placement.copies[stage]]
    return {key: sorted(found) for key, found in places.items() if len(found) > 1}


def shared_groups(stages: Sequence[nn.Module], schedule: Schedule) -> list[list[SharedGroup]]:
    """Per rank, the groups it belongs to, by number. A rank that holds a parameter twice counts as one place."""
    parameters = {id(p): p for stage in stages for p in stage.parameters()}
    reduced = _reduced(schedule)
    alike: dict[tuple[tuple[int, ...], torch.dtype, int | None], list[_Shared]] = {}
    for key, places in shared_places(stages, schedule.placement).items():
        by_rank = {rank: (stage, name) for rank, stage, name in reversed(places)}
        if len(by_rank) > 1 and parameters[key].requires_grad:
            owners = {stage for _, stage, _ in places}
            # Of tied stages the last to be ready is not known here.
            stage = owners.pop() if len(owners) == 1 and owners <= reduced else None
            ends = (tuple(sorted(by_rank)), parameters[key].dtype, stage)
            alike.setdefault(ends, []).append(_Shared(by_rank, parameters[key].nbytes))
    buckets = [(ranks, stage, one) for (ranks, _, stage), found in alike.items() for one in _buckets(found)]
    groups: list[list[SharedGroup]] = [[] for _ in range(schedule.ranks)]
    for number, (ranks, stage, found) in enumerate(buckets):
        for rank in ranks:
            groups[rank].append(SharedGroup(number, ranks, stage, tuple(one.places[rank] for one in found)))
    return groups


@dataclass(frozen=True)
class _Shared:
    """A parameter: its stage and name by rank, and its bytes."""

    places: Mapping[int, tuple[int, str]]
    nbytes: int


def _reduced(schedule: Schedule) -> set[int]:
    """The stages that meet a REDUCE_GRAD on every rank that holds them."""
    at = np.flatnonzero(schedule.kind == Kind.REDUCE_GRAD)
    met = set(zip(schedule.stage[at].tolist(), schedule.rank[at].tolist(), strict=True))
    return {s for s, ranks in enumerate(schedule.placement.copies) if all((s, rank) in met for rank in ranks)}


def _buckets(found: Sequence[_Shared]) -> Iterator[list[_Shared]]:
    """Parameters in their order, in parts of at most BUCKET bytes, or of one parameter."""
    bucket: list[_Shared] = []
    nbytes = 0
    for one in found:
        if bucket and nbytes + one.nbytes > BUCKET:
            yield bucket
            bucket, nbytes = [], 0
        bucket.append(one)
        nbytes += one.nbytes
    yield bucket


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
            merged[stage][name] = sum(given[1:], start=given[0])
    return {stage: merged[stage] for stage in sorted(merged)}
