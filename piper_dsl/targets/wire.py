"""How the ranks are connected: who sends to whom, and what all of them agree about.

Where all ranks are on one machine they have lines to each other. Else, and on GPUs, they meet in process groups,
which also sum gradients.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ..runtime.shared import SharedGroup
from .group_links import GroupLinks
from .groups import Groups, WirePlan, joined_store
from .links import Links
from .meeting import on_one_machine, opened
from .neighbours import Neighbours

__all__ = ["Wire"]


class Wire:
    """One rank's end of everything. All ranks make theirs at once."""

    def __init__(self, rank: int, plan: WirePlan) -> None:
        store = joined_store(plan)
        near = plan.device == "cpu" and on_one_machine(rank, plan.ranks, store)
        self._near = Neighbours(rank, opened(rank, _peers(rank, plan), store)) if near else None
        pairs = () if near else plan.pairs
        self._groups = None if near and not plan.summing else Groups(rank, replace(plan, pairs=pairs), store)

    def links(self, bounded: bool) -> Links:
        """What carries messages. ``bounded``: the program also runs where a send waits for its receive."""
        return self._near or GroupLinks(self._far, bounded)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        return bool(self.total(float(flag)))

    def total(self, number: float) -> float:
        """The number, summed over all ranks."""
        return self._near.total(number) if self._near else self._far.total(number)

    def start(self, group: SharedGroup, part: torch.Tensor) -> None:
        """Begins to sum a tensor in place over the ranks of a group, in the background."""
        self._far.start(group, part)

    def take(self, group: SharedGroup) -> torch.Tensor:
        """Waits for a sum."""
        return self._far.take(group)

    def forget(self, group: SharedGroup) -> None:
        """Waits for a sum, which nobody wants: the next one of the group would be taken for it."""
        self._far.take(group)

    @property
    def _far(self) -> Groups:
        assert self._groups is not None
        return self._groups


def _peers(rank: int, plan: WirePlan) -> set[int]:
    """The ranks that a rank talks to; those of its messages, and rank 0 to everyone."""
    talks = {other for pair in plan.pairs if rank in pair for other in pair}
    talks |= set(range(plan.ranks)) if rank == 0 else {0}
    return talks - {rank}
