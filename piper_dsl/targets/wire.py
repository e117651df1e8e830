"""How the ranks are connected: who sends to whom, and what all of them agree about.

Processes of one machine have lines to each other. Where ranks are on several, and for messages on GPUs, they meet in
process groups, which also sum gradients.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ..runtime.shared import SharedGroup
from .group_links import GroupLinks
from .groups import Groups, WirePlan, joined_store
from .line import DRIVER
from .links import Links
from .meeting import Meeting
from .neighbours import Neighbours

__all__ = ["Wire"]


class Wire:
    """One rank's end of everything. All ranks make theirs at once; ``node`` is the one of Ray's that it is on."""

    def __init__(self, rank: int, plan: WirePlan, node: str) -> None:
        store = joined_store(plan)
        ranks = set(range(plan.ranks))
        with Meeting(rank, store, node) as meeting:
            near = meeting.near({DRIVER} | ranks if plan.graph else ranks)
            self._together = ranks <= near
            # A program's ranks have lines to all or to none, those of a graph to whomever they lead.
            lined = near if self._together or plan.graph else set()
            self.neighbours = Neighbours(rank, meeting.connect(_peers(rank, plan) & lined))
        self._by_lines = self._together and plan.device == "cpu"
        # What carries the messages of a graph is not ours.
        pairs = () if self._by_lines or plan.graph else plan.pairs
        grouped = bool(pairs or plan.summing) or not self._together
        self._groups = Groups(rank, replace(plan, pairs=pairs), store) if grouped else None

    def links(self, bounded: bool) -> Links:
        """What carries messages. ``bounded``: the program also runs where a send waits for its receive."""
        # Without groups there are lines, or nothing to carry: one rank on a GPU.
        return self.neighbours if self._by_lines or self._groups is None else GroupLinks(self._groups, bounded)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        return bool(self.total(float(flag)))

    def total(self, number: float) -> float:
        """The number, summed over all ranks."""
        return self.neighbours.total(number) if self._together else self._far.total(number)

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
    """The processes that a rank talks to: those of its messages, rank 0 to everyone, and the driver of a graph."""
    talks = {other for pair in plan.pairs if rank in pair for other in pair}
    talks |= {DRIVER, *range(plan.ranks)} if rank == 0 else {DRIVER, 0}
    return talks - {rank}
