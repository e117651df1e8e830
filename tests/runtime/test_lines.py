"""Lines between the ranks of one machine: what is sent arrives, however large, and no one waits for ever."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from piper_dsl.ir.operations import Kind
from piper_dsl.runtime.message import Message
from piper_dsl.targets.actions import Transfer
from piper_dsl.targets.neighbours import Neighbours
from piper_dsl.targets.ring import LAYOUTS, SLOTS

MANY = 5 * SLOTS


@contextmanager
def _ranks(count: int) -> Iterator[list[Neighbours]]:
    """All connected with each other."""
    ends: list[dict[int, socket.socket]] = [{} for _ in range(count)]
    for one in range(count):
        for other in range(one):
            ends[one][other], ends[other][one] = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        ranks = [Neighbours(rank, connections) for rank, connections in enumerate(ends)]
        for rank in ranks:
            rank.begin(7, None, ())
        yield ranks
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


def _send(rank: Neighbours, peer: int, tag: int, *tensors: torch.Tensor) -> None:
    message = Message(7, 0, 1, tag, tensors, (True,) * len(tensors))
    rank.send(Transfer(Kind.F, 0, 1, tag, peer, tag), message)


def _take(rank: Neighbours, peer: int, tag: int) -> torch.Tensor:
    message = rank.receive(Transfer(Kind.F, 0, 1, tag, peer, tag))
    assert message is not None
    assert (message.step, message.microbatch, message.needs_grad) == (7, tag, (True,) * len(message.tensors))
    return message.tensors[0]


def test_all_may_send_more_than_there_is_room_for_before_they_take_anything() -> None:
    found: dict[tuple[int, int], list[float]] = {}

    def talk(ranks: list[Neighbours], rank: int) -> None:
        others = [other for other in range(3) if other != rank]
        for tag in range(MANY):
            for other in others:
                _send(ranks[rank], other, tag, torch.full((8,), float(100 * rank + tag)))
        for other in others:
            # The last is asked for first: messages are found by their tags.
            taken = [_take(ranks[rank], other, tag) for tag in reversed(range(MANY))]
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
        received.extend(_take(rank, 0, tag) for tag in range(len(sizes)))

    with _ranks(2) as ranks:
        _together(lambda: send(ranks[0]), lambda: take(ranks[1]))
    assert all(torch.equal(one, other) for one, other in zip(sent, received, strict=True))


def test_what_was_taken_stays_when_its_slot_is_filled_again() -> None:
    with _ranks(2) as ranks:
        _send(ranks[0], 1, 0, torch.full((4,), 1.0))
        first = _take(ranks[1], 0, 0)
        for tag in range(1, MANY):
            _send(ranks[0], 1, tag, torch.full((4,), 2.0))
            _take(ranks[1], 0, tag)
        assert first.tolist() == [1.0] * 4


def test_shapes_may_change_with_every_message_and_come_again() -> None:
    sizes = [*range(1, 2 * LAYOUTS), *range(1, 2 * LAYOUTS)]
    received: list[torch.Tensor] = []

    def send(rank: Neighbours) -> None:
        for tag, size in enumerate(sizes):
            _send(rank, 1, tag, torch.full((size, 2), float(tag)), torch.zeros(size, dtype=torch.int64))

    def take(rank: Neighbours) -> None:
        received.extend(_take(rank, 0, tag) for tag in range(len(sizes)))

    with _ranks(2) as ranks:
        _together(lambda: send(ranks[0]), lambda: take(ranks[1]))
    assert [x.shape[0] for x in received] == sizes
    assert [x.unique().tolist() for x in received] == [[float(tag)] for tag in range(len(sizes))]


def test_what_a_failure_left_uncomputed_arrives_as_nothing() -> None:
    found: list[Message | None] = []
    with _ranks(2) as ranks:
        transfers = [Transfer(Kind.F, 0, 1, tag, 1, tag) for tag in range(MANY)]
        _together(
            lambda: [ranks[0].send(transfer, None) for transfer in transfers] and None,
            lambda: found.extend(ranks[1].receive(replace(transfer, peer=0)) for transfer in transfers),
        )
    assert found == [None] * MANY


def test_a_message_of_another_step_is_refused() -> None:
    with _ranks(2) as ranks:
        _send(ranks[0], 1, 3, torch.zeros(1))
        ranks[1].begin(8, None, ())
        with pytest.raises(ValueError, match="message 3 of step 8 was due, but that of step 7 arrived"):
            _take(ranks[1], 0, 3)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_only_dense_tensors_are_sent() -> None:
    others = {
        "sparse_coo": torch.eye(2).to_sparse(),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    }
    with _ranks(2) as ranks:
        for kind, tensor in others.items():
            with pytest.raises(ValueError, match=f"only dense tensors go between ranks; this one is {kind}:"):
                _send(ranks[0], 1, 0, tensor)
        # Nothing was sent, and the line is as it was.
        _send(ranks[0], 1, 0, torch.eye(2).to(torch.complex64).conj())
        assert torch.equal(_take(ranks[1], 0, 0), torch.eye(2).to(torch.complex64))


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
            _take(rank, 1, 0)
        with pytest.raises(ConnectionError, match="rank 1 closed its connection"):
            _send(rank, 1, 0, torch.zeros(1))
