"""A schedule with its transfers in place: what every rank does, in order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..ir.schedule import Schedule
from ..ir.slots import Slots
from .transfers import Transfers

__all__ = ["COMPUTE", "RECEIVE", "SEND", "Plan", "split", "step_ranks"]

COMPUTE, SEND, RECEIVE = 0, 1, 2
"""What a step does: run a slot, or one end of a transfer. A step is one integer, its code:
three times the number of the slot or transfer, plus this."""


def split(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The indices and the kinds (COMPUTE, SEND, RECEIVE) of steps."""
    return codes // 3, codes % 3


@dataclass(frozen=True, eq=False)
class Plan:
    """Steps in one global order, as codes (int64); every rank keeps what concerns it.

    The order respects the order of every rank and every need; a SEND stands before its RECV. Where the
    schedule writes its transfers itself, ``operation[t, SEND or RECEIVE]`` is the operation that is that
    end, and ``group`` has the same number for ends on one rank that start together.
    """

    schedule: Schedule
    slots: Slots
    transfers: Transfers
    order: np.ndarray
    group: np.ndarray | None = None
    operation: np.ndarray | None = None

    @cached_property
    def rank(self) -> np.ndarray:
        """The rank of every step of ``order``."""
        return step_ranks(self.order, self.slots, self.transfers)

    @cached_property
    def rows(self) -> list[np.ndarray]:
        """The steps of every rank, in order."""
        by_rank = np.argsort(self.rank, kind="stable")
        bounds = np.searchsorted(self.rank[by_rank], np.arange(1, self.schedule.ranks))
        return np.split(self.order[by_rank], bounds)


def step_ranks(codes: np.ndarray, slots: Slots, transfers: Transfers) -> np.ndarray:
    """The rank that every step runs on."""
    index, what = split(codes)
    rank = np.empty(len(codes), dtype=np.int64)
    rank[what == COMPUTE] = transfers.schedule.rank[slots.first[index[what == COMPUTE]]]
    rank[what == SEND] = transfers.sender[index[what == SEND]]
    rank[what == RECEIVE] = transfers.receiver[index[what == RECEIVE]]
    return rank
