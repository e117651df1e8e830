"""Messages between processes: whole, in order by channel, waited for asleep, and nothing left of them."""

from __future__ import annotations

import multiprocessing
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from piper_dsl.targets.inbox import Address, Closed, Inbox, Outbox

LIMIT = 30.0
"""Seconds after which something hangs."""


def _parts(*texts: bytes) -> list[memoryview]:
    return [memoryview(text) for text in texts]


def _sized(number: int) -> bytes:
    return np.full(1 + number * 977 % 100_000, number % 251, dtype=np.uint8).tobytes()


def _send_all(address: Address, count: int) -> None:
    outbox = Outbox.to(address)
    for number in range(count):
        outbox.put(number % 7, _parts(str(number).encode(), _sized(number)))
    # Who sends stays until all has been read: its memory is its own.
    time.sleep(LIMIT)


def test_messages_of_another_process_arrive_whole_and_in_the_order_of_their_channel() -> None:
    inbox = Inbox("here")
    # Many more bytes than a pipe holds; other channels first, while the rest arrives.
    count = 700
    sender = multiprocessing.get_context("spawn").Process(target=_send_all, args=(inbox.address, count))
    sender.start()
    try:
        for channel in reversed(range(7)):
            for number in range(channel, count, 7):
                text, data = inbox.take(channel, LIMIT)
                assert int(text) == number
                assert data == _sized(number)
                data[0] ^= 1  # it is the reader's own
    finally:
        sender.kill()
        sender.join()


def test_memory_is_what_is_under_way() -> None:
    inbox, files = Inbox("here"), _memory()
    outbox = Outbox.to(inbox.address)
    for _ in range(50):
        outbox.put(1, _parts(b"a" * 5000))
        outbox.put(2, _parts(b"b" * 6000))
        assert inbox.take(2, LIMIT) == [b"b" * 6000]
        assert inbox.take(1, LIMIT) == [b"a" * 5000]
    # Two messages wait at a time, and two have been read of which the writer does not know yet.
    assert 0 < sum(size for _, size in _memory() - files) <= 4 * 8192
    del outbox, inbox
    assert _memory() == files


def _memory() -> set[tuple[int, int]]:
    """The files of shared memory of this process, with their sizes."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            if "piper-dsl" in str(entry.readlink()):
                found.add((entry.stat().st_ino, entry.stat().st_size))
    return found


def test_memory_is_let_go_of_while_somebody_still_knows_the_inbox() -> None:
    inbox = Inbox("here")
    outbox = Outbox.to(inbox.address)
    own = _mapped()
    for _ in range(3):
        outbox.put(1, _parts(b"read"))
        outbox.put(2, _parts(b"not read"))
    assert inbox.take(1, LIMIT) == [b"read"]
    assert _mapped() > own
    own = _mapped()
    inbox.release()
    assert _mapped() == own / 2
    with pytest.raises(Closed):
        inbox.take(2, LIMIT)


def _mapped() -> int:
    """How often this process has mapped memory of messages."""
    return Path("/proc/self/maps").read_text().count("memfd:piper-dsl")


def test_who_waits_sleeps_and_is_woken() -> None:
    inbox = Inbox("here")
    outbox = Outbox.to(inbox.address)
    threading.Timer(0.5, outbox.put, (3, _parts(b"x"))).start()
    used = time.thread_time()
    assert inbox.take(3, LIMIT) == [b"x"]
    assert time.thread_time() - used < 0.05
    with pytest.raises(TimeoutError):
        inbox.take(3, 0.01)
    with pytest.raises(TimeoutError):
        inbox.take(3, 0)


def test_a_closed_inbox_lets_go_who_waits_but_gives_what_came() -> None:
    inbox = Inbox("here")
    outbox = Outbox.to(inbox.address)
    outbox.put(5, _parts(b"last"))
    threading.Timer(0.1, inbox.close).start()
    with pytest.raises(Closed):
        inbox.take(4, LIMIT)
    assert inbox.take(5, LIMIT) == [b"last"]
    with pytest.raises(Closed):
        inbox.take(5, LIMIT)


def test_no_way_leads_to_an_inbox_that_is_gone() -> None:
    inbox = Inbox("here")
    assert inbox.reaches([inbox.address, Address("elsewhere", 1, 2, 3)])
    address = inbox.address
    outbox = Outbox.to(address)
    del inbox
    with pytest.raises(Closed, match="who reads"):
        outbox.put(1, _parts(b"x"))
    del outbox
    assert not Inbox("here").reaches([address])
    assert not Inbox("here").reaches([Address("here", 1 << 22, 3, 4)])
    assert Inbox.at(address) is None


def test_a_message_whose_writer_is_gone_is_told_of() -> None:
    inbox = Inbox("here")
    Outbox.to(inbox.address).put(1, _parts(b"x"))
    with pytest.raises(Closed, match="which wrote, is gone"):
        inbox.take(1, LIMIT)
