"""Lines between the ranks of one machine: what is sent arrives, however large, and no one waits for ever."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from piper_dsl.ir.operations import Kind
from piper_dsl.runtime.layout import Head, Layout
from piper_dsl.runtime.message import Message
from piper_dsl.targets.actions import Transfer
from piper_dsl.targets.neighbours import Neighbours
from piper_dsl.targets.ring import SLOTS

MANY = 5 * SLOTS


@contextmanager
def _ranks(count: int) -> Iterator[list[Neighbours]]:
    """All connected with each other."""
    ends: list[dict[int, socket.socket]] = [{} for _ in range(count)]
    for one in range(count):
        for other in range(one):
            ends[one][other], ends[other][one] = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        yield [Neighbours(rank, connections) for rank, connections in enumerate(ends)]
    finally:
        for connection in (connection for connections in ends for connection in connections.values()):
            connection.close()


def _together(*jobs: Callable[[], None]) -> None:
    """Runs jobs at once; they must all end."""
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    assert not any(thread.is_alive() for thread in threads)


def _send(ranks: Neighbours, peer: int, tag: int, tensor: torch.Tensor) -> None:
    message = Message(0, 0, 1, tag, (tensor,), (True,))
    ranks.send(Transfer(Kind.F, 0, 1, tag, peer, tag), Layout.of(message), message, 7)


def _take(ranks: Neighbours, peer: int, tag: int, layout: Layout) -> torch.Tensor:
    buffer = ranks.take(Transfer(Kind.F, 0, 1, tag, peer, tag))
    assert Head.read(buffer) == Head(7, tag, True)
    return layout.views(buffer)[0]


def test_all_may_send_more_than_there_is_room_for_before_they_take_anything() -> None:
    layout = Layout(((8,),), (torch.float32,), (True,))
    found: dict[tuple[int, int], list[float]] = {}

    def talk(ranks: list[Neighbours], rank: int) -> None:
        others = [other for other in range(3) if other != rank]
        for tag in range(MANY):
            for other in others:
                _send(ranks[rank], other, tag, torch.full((8,), float(100 * rank + tag)))
        for other in others:
            # The last is asked for first: messages are found by their tags.
            taken = [_take(ranks[rank], other, tag, layout) for tag in reversed(range(MANY))]
            found[rank, other] = [float(x[0]) for x in reversed(taken)]

    with _ranks(3) as ranks:
        _together(*(lambda rank=rank: talk(ranks, rank) for rank in range(3)))  # type: ignore[misc]
    assert len(found) == 6
    assert all(values == [100.0 * other + tag for tag in range(MANY)] for (_, other), values in found.items())


def test_messages_of_any_size_follow_each_other() -> None:
    sizes = [1, 3000, 2, 200_000, 5, 200_000, 1_000_000, 0]
    sent = [torch.randn(size) for size in sizes]
    received: list[torch.Tensor] = []

    def send(rank: Neighbours) -> None:
        for tag, tensor in enumerate(sent):
            _send(rank, 1, tag, tensor)

    def take(rank: Neighbours) -> None:
        for tag, size in enumerate(sizes):
            received.append(_take(rank, 0, tag, Layout(((size,),), (torch.float32,), (True,))))

    with _ranks(2) as ranks:
        _together(lambda: send(ranks[0]), lambda: take(ranks[1]))
    assert all(torch.equal(one, other) for one, other in zip(sent, received, strict=True))


def test_what_was_taken_stays_when_its_slot_is_filled_again() -> None:
    layout = Layout(((4,),), (torch.float32,), (True,))
    with _ranks(2) as ranks:
        _send(ranks[0], 1, 0, torch.full((4,), 1.0))
        first = _take(ranks[1], 0, 0, layout)
        for tag in range(1, MANY):
            _send(ranks[0], 1, tag, torch.full((4,), 2.0))
            _take(ranks[1], 0, tag, layout)
        assert first.tolist() == [1.0] * 4


def test_numbers_are_added_in_the_order_of_ranks() -> None:
    found: dict[int, list[float]] = {}

    def add(ranks: list[Neighbours], rank: int) -> None:
        found[rank] = [ranks[rank].total(number) for number in (0.1 * (rank + 1), float(rank == 2))]

    with _ranks(3) as ranks:
        _together(*(lambda rank=rank: add(ranks, rank) for rank in range(3)))  # type: ignore[misc]
    assert found == {rank: [0.1 + 0.2 + 0.1 * 3, 1.0] for rank in range(3)}


def test_a_rank_that_is_gone_is_named() -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    there.close()
    with here:
        rank = Neighbours(0, {1: here})
        with pytest.raises(ConnectionError, match="rank 1 closed its connection"):
            _take(rank, 1, 0, Layout((), (), ()))
        with pytest.raises(ConnectionError, match="rank 1 closed its connection"):
            _send(rank, 1, 0, torch.zeros(1))
