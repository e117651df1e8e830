"""Sums over ranks that live in one process."""

from __future__ import annotations

import torch

from ..runtime.shared import SharedGroup

__all__ = ["LocalSums", "Parts"]

Parts = dict[int, dict[int, torch.Tensor]]
"""By group and rank: what was given to be summed."""


class LocalSums:
    """One rank's way to the ``parts`` that all ranks lay down and pick up."""

    def __init__(self, rank: int, parts: Parts) -> None:
        self._rank = rank
        self._parts = parts

    def start(self, group: SharedGroup, part: torch.Tensor) -> None:
        """Lays a part down."""
        self._parts.setdefault(group.number, {})[self._rank] = part

    def take(self, group: SharedGroup) -> torch.Tensor:
        """The sum of the parts of all ranks of the group, in their order. The last rank clears up."""
        parts = self._parts[group.number]
        first, *others = (parts[rank] for rank in group.ranks)
        if self._rank == group.ranks[-1]:
            del self._parts[group.number]
        return sum(others, start=first)

    def forget(self, group: SharedGroup) -> None:
        """Takes the part back."""
        self._parts[group.number].pop(self._rank, None)
