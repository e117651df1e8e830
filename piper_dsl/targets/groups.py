"""Process groups: how ranks on several machines, and on GPUs, send, sum and agree.

Under gloo one group carries all messages, and one is found by its tag (transport ``buffered``). NCCL has no tags: two
ranks that talk have communicators of their own, one for each direction (``direction``) or one for both (``pair``).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ..runtime.shared import SharedGroup

__all__ = ["Groups", "Pair", "WirePlan", "joined_store"]

CONNECT = timedelta(seconds=60)
NEVER = timedelta(days=365)
"""What takes too long is for the watchdog to say."""

AHEAD = 4
"""Receives that are posted beyond the last that was taken."""

Pair = tuple[int, int]
"""Sender and receiver."""


@dataclass(frozen=True)
class WirePlan:
    """What every rank connects, the same on all: the store's address, directed pairs, groups that sum gradients.

    ``transport`` is ``buffered``, ``direction`` or ``pair``. Where messages go by a ``graph``, that is its name, and
    there are lines to the driver too.
    """

    host: str
    port: int
    ranks: int
    device: str
    pairs: tuple[Pair, ...]
    summing: tuple[tuple[int, ...], ...]
    transport: str = "buffered"
    graph: str = ""


def _communicators(plan: WirePlan) -> dict[Pair, Pair]:
    """By directed pair, the ranks whose communicator carries it; none where one group carries all."""
    if plan.transport == "buffered":
        return {}
    return {pair: (min(pair), max(pair)) if plan.transport == "pair" else pair for pair in plan.pairs}


def joined_store(plan: WirePlan) -> TCPStore:
    """Where the ranks find each other."""
    return TCPStore(plan.host, plan.port, is_master=False, timeout=CONNECT)


class Groups:
    """One rank's part in all groups. All ranks make theirs at once."""

    def __init__(self, rank: int, plan: WirePlan, store: TCPStore) -> None:
        self.device = plan.device
        # Where one communicator carries both directions, a receive that is posted ahead would overtake sends.
        self.ahead = 0 if plan.transport == "pair" else AHEAD
        self._rank = rank
        # What all ranks agree about are numbers on CPUs, also where messages are on GPUs.
        backend = "cpu:gloo,cuda:nccl" if plan.device == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=plan.ranks, timeout=NEVER)
        # All ranks make all groups, in one order.
        communicators = _communicators(plan)
        made = {key: dist.new_group(sorted(key), timeout=NEVER) for key in dict.fromkeys(communicators.values())}
        # The group of a pair, and the number of the other rank in it. A group's own methods, since those of
        # torch.distributed check at length what is known here, for every message.
        self._ends: dict[Pair, tuple[Any, int]] = {
            pair: (made[key], dist.get_group_rank(made[key], pair[1] if rank == pair[0] else pair[0]))
            for pair, key in communicators.items()
            if rank in pair
        }
        self._all: Any = dist.group.WORLD
        self._sums: dict[int, tuple[Any, torch.Tensor]] = {}
        self._summing = {ranks: dist.new_group(list(ranks), timeout=NEVER) for ranks in plan.summing}
        for pair in plan.pairs:
            self._greet(pair)

    def _greet(self, pair: Pair) -> None:
        """Opens a connection before the first step, in the same order everywhere."""
        hello = torch.zeros(1, device=self.device)
        sender, receiver = pair
        if self._rank == sender:
            self.send(hello, receiver, 0).wait()
        elif self._rank == receiver:
            self.receive(hello, sender, 0).wait()

    def send(self, buffer: torch.Tensor, peer: int, tag: int) -> Any:
        """Starts to send; what it returns is to be waited for before the buffer changes."""
        group, number = self._ends.get((self._rank, peer), (self._all, peer))
        return group.send([buffer], number, self._tag(tag))

    def receive(self, buffer: torch.Tensor, peer: int, tag: int) -> Any:
        """Lets a message of exactly the buffer's size arrive; what it returns is to be waited for, once."""
        group, number = self._ends.get((peer, self._rank), (self._all, peer))
        return group.recv([buffer], number, self._tag(tag))

    def _tag(self, tag: int) -> int:
        """None where order alone tells messages apart, on gloo too, so that what runs there also runs on NCCL."""
        return 0 if self._ends else tag

    def total(self, number: float) -> float:
        """The number, summed over all ranks."""
        found = torch.tensor([number], dtype=torch.float64)
        dist.all_reduce(found)
        return float(found.item())

    def start(self, group: SharedGroup, part: torch.Tensor) -> None:
        """Begins to sum a tensor in place over the ranks of a group, in the background."""
        work = dist.all_reduce(part, group=self._summing[group.ranks], async_op=True)
        self._sums[group.number] = work, part

    def take(self, group: SharedGroup) -> torch.Tensor:
        """Waits for a sum."""
        work, total = self._sums.pop(group.number)
        work.wait()
        return total
