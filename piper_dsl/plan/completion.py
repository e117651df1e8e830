"""Does an order of transfers complete on a transport? The exact test, in linear time.

Merge every SEND with the RECV it meets into one node. Add the order in which a rank computes, producer →
transfer → consumer, and a chain over the transfers of every queue at either end (for transports in
program order, over all steps of a rank), in which the members of a group stand side by side, each behind
the producers of all. It completes exactly if that has no cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from .plan import COMPUTE, RECEIVE, SEND
from .transport import Transport
from .written import Written

__all__ = ["Completion", "complete", "match"]


@dataclass(frozen=True, eq=False)
class Completion:
    """How far the steps get. ``order`` has all that run, as codes, each after what it waits for.

    ``cycle`` is empty if all do; else nodes that wait for each other in a circle, each as the steps it
    is made of.
    """

    order: np.ndarray
    cycle: tuple[tuple[int, ...], ...]


def match(written: Written, transport: Transport) -> dict[int, int]:
    """The RECV that every SEND meets, by transfer: by key, or by order within the directed pair."""
    count = len(written.transfers)
    if not transport.by_order:
        return {transfer: transfer for transfer in range(count)}
    return {
        sent: received
        for pair in written_pairs(written).values()
        for sent, received in zip(pair[0], pair[1], strict=False)
    }


def written_pairs(written: Written) -> dict[tuple[int, int], tuple[list[int], list[int]]]:
    """For every directed pair of ranks, the transfers in the order they are sent and received."""
    sender, receiver = written.transfers.sender.tolist(), written.transfers.receiver.tolist()
    pairs: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    for row in written.rows:
        for step in row:
            transfer, what = step // 3, step % 3
            if what != COMPUTE:
                pair = pairs.setdefault((sender[transfer], receiver[transfer]), ([], []))
                pair[0 if what == SEND else 1].append(transfer)
    return pairs


def complete(written: Written, transport: Transport) -> Completion:
    """Runs the steps as far as they get. Transfers without a partner count as never arriving."""
    nodes = _Nodes(written, transport)
    edges = np.array(list(nodes.edges()), dtype=np.int64).reshape(-1, 2)
    successors: list[list[int]] = [[] for _ in range(nodes.count)]
    missing = np.bincount(edges[:, 1], minlength=nodes.count).tolist()
    for before, after in edges.tolist():
        successors[before].append(after)
    ready = [node for node in range(nodes.count) if not missing[node]]
    for node in ready:
        for after in successors[node]:
            missing[after] -= 1
            if not missing[after]:
                ready.append(after)
    order = np.array([step for node in ready for step in nodes.steps[node]], dtype=np.int64)
    return Completion(order, tuple(nodes.steps[node] for node in _cycle(edges, missing)))


class _Nodes:
    """Steps merged into nodes: a slot, a SEND with the RECV it meets, or one end of a transfer."""

    def __init__(self, written: Written, transport: Transport) -> None:
        self._written, self._transport = written, transport
        self._partner = match(written, transport)
        self._node_of: dict[int, int] = {}
        self._members_of: dict[int, list[int]] = {}
        for step in (step for row in written.rows for step in row if step % 3 != COMPUTE):
            self._members_of.setdefault(int(written.group[step // 3, step % 3]), []).append(step)
        self.steps: list[tuple[int, ...]] = []
        for members in self._members():
            for step in members:
                self._node_of[step] = len(self.steps)
            self.steps.append(members)

    @property
    def count(self) -> int:
        return len(self.steps)

    def _members(self) -> Iterator[tuple[int, ...]]:
        written = {step for row in self._written.rows for step in row}
        yield from ((step,) for step in sorted(written) if step % 3 == COMPUTE)
        if not self._transport.rendezvous:
            yield from ((step,) for step in sorted(written) if step % 3 != COMPUTE)
            return
        pairs = [(sent * 3 + SEND, received * 3 + RECEIVE) for sent, received in self._partner.items()]
        meeting = [tuple(step for step in pair if step in written) for pair in pairs]
        yield from filter(None, meeting)
        partnered = {step for steps in meeting for step in steps}
        yield from ((step,) for step in sorted(written - partnered) if step % 3 != COMPUTE)

    def edges(self) -> Iterator[tuple[int, int]]:
        """What must have happened before what, as pairs of nodes."""
        for before, after in self._step_edges():
            first, second = self._node_of.get(before), self._node_of.get(after)
            if first is not None and second is not None and first != second:
                yield first, second

    def _step_edges(self) -> Iterator[tuple[int, int]]:
        written, transport = self._written, self._transport
        schedule, slots, transfers = written.schedule, written.slots, written.transfers
        rank_of = schedule.rank[slots.first[:-1]]
        needing = np.repeat(np.arange(len(slots)), np.diff(slots.needs.offsets))
        local = rank_of[needing] == rank_of[slots.needs.sources]
        for source, slot in zip(slots.needs.sources[local].tolist(), needing[local].tolist(), strict=True):
            yield source * 3 + COMPUTE, slot * 3 + COMPUTE
        for transfer, consumer in enumerate(schedule.slot[transfers.consumer].tolist()):
            yield transfer * 3 + RECEIVE, consumer * 3 + COMPUTE
        yield from self._starts()
        for chain in self._chains():
            for before, after in pairwise(self._grouped(chain)):
                # A group has its turn in all its queues at once, and leaves them when all of it has ended.
                yield from product(self._whole_group(before[0]), self._whole_group(after[0]))
        if not transport.rendezvous:
            for sent, received in self._partner.items():
                yield sent * 3 + SEND, received * 3 + RECEIVE
        if transport.slots:
            for sends, receives in written_pairs(written).values():
                for sending, freeing in zip(sends[transport.slots :], receives, strict=False):
                    yield freeing * 3 + RECEIVE, sending * 3 + SEND

    def _starts(self) -> Iterator[tuple[int, int]]:
        """The members of a group start together: each waits for what all of them send."""
        producer = self._written.schedule.slot[self._written.transfers.producer].tolist()
        for row in self._written.rows:
            for group in self._grouped(row):
                for sends, member in product(group, group):
                    if sends % 3 == SEND and member % 3 != COMPUTE:
                        yield producer[sends // 3] * 3 + COMPUTE, member

    def _chains(self) -> Iterator[Sequence[int]]:
        """Steps that happen one after another: on a rank, and in every queue at either end."""
        if self._transport.program_order:
            yield from self._written.rows
            return
        for row in self._written.rows:
            yield [step for step in row if step % 3 == COMPUTE]
        if self._transport.rendezvous:
            for rank, row in enumerate(self._written.rows):
                queues: dict[tuple[int, ...], list[int]] = {}
                for step in row:
                    if step % 3 != COMPUTE:
                        queues.setdefault(self._queue(rank, step), []).append(step)
                yield from queues.values()

    def _grouped(self, chain: Sequence[int]) -> list[list[int]]:
        """The steps of a chain, those of one group together."""
        found: list[list[int]] = []
        last = None
        for step in chain:
            group = None if step % 3 == COMPUTE else int(self._written.group[step // 3, step % 3])
            if group is not None and group == last:
                found[-1].append(step)
            else:
                found.append([step])
            last = group
        return found

    def _whole_group(self, step: int) -> list[int]:
        """All steps of a rank that start together with one, itself included."""
        if step % 3 == COMPUTE:
            return [step]
        return self._members_of[int(self._written.group[step // 3, step % 3])]

    def _queue(self, rank: int, step: int) -> tuple[int, ...]:
        transfers, sends = self._written.transfers, step % 3 == SEND
        peer = transfers.receiver[step // 3] if sends else transfers.sender[step // 3]
        return self._transport.queue(rank, int(peer), sends)


def _cycle(edges: np.ndarray, missing: list[int]) -> list[int]:
    """Nodes that wait for each other, each for the next; empty if none does."""
    stuck = np.array(missing) > 0
    waits: dict[int, int] = {}
    inside = stuck[edges[:, 0]] & stuck[edges[:, 1]] if len(edges) else np.zeros(0, dtype=bool)
    for before, after in edges[inside].tolist():
        waits.setdefault(after, before)
    node = next((int(n) for n in np.flatnonzero(stuck) if int(n) in waits), None)
    seen: list[int] = []
    position: dict[int, int] = {}
    while node is not None and node not in position:
        position[node] = len(seen)
        seen.append(node)
        node = waits.get(node)
    return seen[position[node] :] if node is not None else []
