"""Lines between processes of one machine: what is sent arrives, however large, and no one waits for ever."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed import TCPStore

from piper_dsl.ir.operations import Kind
from piper_dsl.runtime.message import Message
from piper_dsl.targets.actions import Transfer
from piper_dsl.targets.line import DRIVER
from piper_dsl.targets.meeting import Meeting
from piper_dsl.targets.neighbours import Neighbours
from piper_dsl.targets.ring import LAYOUTS, SLOTS

MANY = 5 * SLOTS
LIMIT = 30.0
"""Seconds after which something hangs."""


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


def test_values_of_any_kind_and_size_arrive_between_messages() -> None:
    values = [None, "x", list(range(100)), np.arange(100_000), RuntimeError("no"), np.arange(7)]
    received: list[Any] = []

    def send(rank: Neighbours) -> None:
        for tag, value in enumerate(values):
            rank.write(1, tag, value)
            rank.write(1, 100 + tag, Message(7, 2, 3, tag, (torch.full((tag,), 1.0),), (True,)))

    def take(rank: Neighbours) -> None:
        # The last is asked for first.
        received.extend(rank.read(0, tag) for tag in reversed(range(len(values))))
        received.extend(rank.read(0, 100 + tag) for tag in range(len(values)))

    with _ranks(2) as ranks:
        _together(lambda: send(ranks[0]), lambda: take(ranks[1]))
    assert list(map(repr, reversed(received[: len(values)]))) == list(map(repr, values))
    for tag, message in enumerate(received[len(values) :]):
        assert (message.step, message.source, message.target, message.microbatch) == (7, 2, 3, tag)
        assert message.tensors[0].tolist() == [1.0] * tag


def test_slots_are_emptied_by_who_need_not_wait() -> None:
    with _ranks(2) as ranks:
        for tag in range(SLOTS):
            ranks[0].write(1, tag, tag)
        ranks[1].read(0, 0)
        for tag in range(SLOTS):
            # What has come is taken out with every message, though it is asked for later.
            ranks[0].write(1, SLOTS + tag, tag)
            ranks[1].read(0, SLOTS + tag)
        assert [ranks[1].read(0, tag) for tag in range(1, SLOTS)] == list(range(1, SLOTS))


def test_a_tag_that_comes_again_too_early_is_an_error() -> None:
    with _ranks(2) as ranks:
        ranks[0].write(1, 3, "first")
        ranks[0].write(1, 3, "second")
        with pytest.raises(RuntimeError, match="message 3 arrived once more before it was taken"):
            ranks[1].read(0, 4)


def test_who_waits_sleeps_and_is_woken_or_gives_up() -> None:
    with _ranks(2) as ranks:
        threading.Timer(0.5, ranks[0].write, (1, 3, "x")).start()
        used = time.thread_time()
        assert ranks[1].read(0, 3, LIMIT) == "x"
        assert time.thread_time() - used < 0.05
        for seconds in (0.01, 0):
            with pytest.raises(TimeoutError, match=f"nothing arrived within {seconds} s"):
                ranks[1].read(0, 4, seconds)


def test_closing_lets_go_who_waits_here_and_there() -> None:
    with _ranks(2) as ranks:
        threading.Timer(0.1, ranks[0].close).start()
        with pytest.raises(ConnectionError, match="rank 0 closed its connection"):
            ranks[1].read(0, 1, LIMIT)
        with pytest.raises(ConnectionError, match="rank 1 closed its connection"):
            ranks[0].read(1, 1, LIMIT)


def test_memory_is_let_go_of_while_somebody_still_knows_the_lines() -> None:
    before = _mapped()
    with _ranks(2) as ranks:
        for tag in range(3):
            ranks[0].write(1, tag, b"some bytes")
        assert ranks[1].read(0, 0) == b"some bytes"
        assert _mapped() == before + 2
        for rank in ranks:
            rank.release()
        assert _mapped() == before
        with pytest.raises(ConnectionError, match="the lines of this process are gone"):
            ranks[1].read(0, 1)


def _mapped() -> int:
    """How often this process has mapped memory of messages."""
    return Path("/proc/self/maps").read_text().count("memfd:piper-dsl")


@pytest.fixture
def store() -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def test_processes_meet_by_machine_and_node(store: TCPStore) -> None:
    # The driver and two ranks on one node, a third on another; all four at once.
    nodes = {DRIVER: "a", 0: "a", 1: "b", 2: "a"}
    found: dict[int, tuple[set[int], dict[int, socket.socket]]] = {}

    def meet(number: int) -> None:
        own = TCPStore("127.0.0.1", store.port, is_master=False)
        with Meeting(number, own, nodes[number]) as meeting:
            near = meeting.near(nodes)
            found[number] = near, meeting.connect(near - {number})

    _together(*(lambda number=number: meet(number) for number in nodes))  # type: ignore[misc]
    assert {number: near for number, (near, _) in found.items()} == {
        DRIVER: {DRIVER, 0, 2},
        0: {DRIVER, 0, 2},
        1: {1},
        2: {DRIVER, 0, 2},
    }
    lines = {number: Neighbours(number, connections) for number, (_, connections) in found.items()}
    for one in (DRIVER, 0, 2):
        for other in lines[one].peers:
            lines[one].write(other, one, f"{one} to {other}")
            assert lines[other].read(one, one, LIMIT) == f"{one} to {other}"
    for line in lines.values():
        line.release()


def test_the_driver_is_named_as_such() -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    there.close()
    with here, pytest.raises(ConnectionError, match="the driver closed its connection"):
        Neighbours(0, {DRIVER: here}).read(DRIVER, 1)


def test_memory_is_what_is_under_way() -> None:
    large = b"x" * 1_000_000
    with _ranks(2) as ranks:
        for tag in range(2 * SLOTS):
            ranks[0].write(1, tag, large)
            assert ranks[1].read(0, tag) == large
            # An answer brings the slot back.
            ranks[1].write(0, tag, tag)
            assert ranks[0].read(1, tag) == tag
        assert 1_000_000 < _resident() < 1_200_000


def _resident() -> int:
    """Bytes of the memory of messages of which this process has touched most."""
    found, mine = [0], False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            mine = "memfd:piper-dsl" in line
        elif mine and line.startswith("Rss:"):
            found.append(1024 * int(line.split()[1]))
    return max(found)


def test_a_line_is_as_it_was_behind_what_cannot_be_sent() -> None:
    with _ranks(2) as ranks:
        _send(ranks[0], 1, 0, torch.full((4,), 1.0))
        with pytest.raises(NotImplementedError):
            _send(ranks[0], 1, 1, torch.empty(4, device="meta"))
        _send(ranks[0], 1, 2, torch.full((4,), 2.0))
        assert [_take(ranks[1], 0, tag).tolist() for tag in (0, 2)] == [[1.0] * 4, [2.0] * 4]


def test_a_message_that_autograd_knows_leaves_its_slot_alone() -> None:
    with _ranks(2) as ranks:
        for tag in range(2):
            _send(ranks[0], 1, tag, torch.ones(3, requires_grad=True))
            assert not _take(ranks[1], 0, tag).requires_grad


def test_an_end_spreads_to_who_waits_for_who_waits() -> None:
    with _ranks(3) as ranks:
        ranks[0].close()
        with pytest.raises(ConnectionError, match="rank 0 closed its connection"):
            ranks[1].read(0, 1, LIMIT)
        # Rank 2 waits for rank 1, which is not coming any more.
        with pytest.raises(ConnectionError):
            ranks[2].read(1, 1, LIMIT)


def test_an_end_that_a_sender_finds_spreads_too() -> None:
    with _ranks(3) as ranks:
        # Its other end hears nothing of this before it is told.
        ranks[0]._connections[1].shutdown(socket.SHUT_RDWR)
        with pytest.raises(ConnectionError, match="rank 0 closed its connection"):
            ranks[1].write(0, 1, "x")
        with pytest.raises(ConnectionError, match="rank 1 closed its connection"):
            ranks[2].read(1, 1, LIMIT)


@pytest.mark.parametrize("what", ["layout", "ring"])
def test_what_could_not_be_told_is_told_again(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # There is no room for another open file, once.
    real, left = os.memfd_create, {"layout": 0, "ring": 1}

    def full(*arguments: Any) -> int:
        left[what] -= 1
        if left[what] == -1:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(*arguments)

    with _ranks(2) as ranks:
        monkeypatch.setattr(os, "memfd_create", full)
        with pytest.raises(OSError, match="Too many open files"):
            _send(ranks[0], 1, 0, torch.full((4,), 1.0))
        _send(ranks[0], 1, 1, torch.full((4,), 2.0))
        assert _take(ranks[1], 0, 1).tolist() == [2.0] * 4


def test_who_waits_while_lines_are_let_go_of_is_told() -> None:
    for _ in range(20):
        with _ranks(2) as ranks:
            threading.Timer(0.005, ranks[1].release).start()
            with pytest.raises(ConnectionError):
                ranks[1].read(0, 1, LIMIT)


def test_memory_is_let_go_of_while_an_error_remembers_who_used_it() -> None:
    before = _mapped()
    with _ranks(2) as ranks:
        ranks[0].write(1, 0, "x")
        ranks[1].read(0, 0)
        ranks[0].close()
        with pytest.raises(ConnectionError) as error:
            ranks[1].read(0, 1, LIMIT)
        for rank in ranks:
            rank.release()
        assert _mapped() == before
        assert error.traceback
