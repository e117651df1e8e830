"""Channels of compiled graphs whose other end is gone: Ray's own error, which a target tells as a death."""

from __future__ import annotations

import os
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from ray.exceptions import RayChannelError, RayChannelTimeoutError
from runtime_models import WIDTH, sgd
from runtime_processes import eventually
from runtime_reference import only
from torch import nn, rand

import piper_dsl as piper
from piper_dsl.targets.crew import Crew
from piper_dsl.targets.graph_channels import GraphChannels, PoliteChannel, _LineChannel, serve
from piper_dsl.targets.line import DRIVER
from piper_dsl.targets.neighbours import Neighbours
from piper_dsl.targets.ray_dag import RayDagTarget
from piper_dsl.targets.ring import SLOTS

LIMIT = 30.0
"""Seconds after which something hangs."""


def test_who_reads_or_writes_by_a_line_that_is_gone_is_told_by_rays_error() -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    lines = Neighbours(DRIVER, {0: here})
    serve("mine", lines)
    to, back = _LineChannel("mine", DRIVER, 0, 1), _LineChannel("mine", 0, DRIVER, 2)
    to.write(b"x")
    with pytest.raises(RayChannelTimeoutError, match=r"nothing arrived within 0\.01 s"):
        back.read(0.01)
    there.close()
    with pytest.raises(RayChannelError, match="rank 0 closed its connection"):
        to.write(b"x")
    with pytest.raises(RayChannelError, match="rank 0 closed its connection"):
        back.read()
    lines.release()
    with pytest.raises(RayChannelError, match="the lines of this process are gone"):
        back.read()
    # One that was here once is no other's.
    del lines, to, back
    with pytest.raises(RayChannelError, match="the lines of this process are gone"):
        _LineChannel("mine", 0, DRIVER, 2).read()


def test_a_rank_that_dies_while_the_graph_is_compiled_is_told(
    own_ranks: Callable[[], set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def channels(
        self: RayDagTarget, crew: Crew, real: Callable[..., GraphChannels] = RayDagTarget._channels
    ) -> GraphChannels:
        found = real(self, crew)
        os.kill(crew.pids[1], 9)
        assert eventually(lambda: crew.pids[1] not in own_ranks(), 5)
        return found

    monkeypatch.setattr(RayDagTarget, "_channels", channels)
    arguments = {"loss_fn": nn.functional.mse_loss, "optimizer": sgd, "target": "ray-dag"}
    stages = [nn.Linear(WIDTH, WIDTH) for _ in range(2)]
    with piper.Pipeline(stages, piper.load("1f1b", p=2, m=4), **arguments) as pipeline:
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(rand(8, WIDTH), rand(8, WIDTH))
        assert only(error).code == "P713"
        assert only(error).message.startswith("rank 1 (process")
        assert only(error).message.endswith("died while the ranks started")


@pytest.fixture
def lines() -> Iterator[tuple[Neighbours, Neighbours]]:
    """Those of the driver, which channels of graph "mine" find, and those of rank 0."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    driver, rank = Neighbours(DRIVER, {0: here}), Neighbours(0, {DRIVER: there})
    serve("mine", driver)
    yield driver, rank
    driver.release()
    rank.release()


def test_a_copy_of_a_channel_closes_the_lines_that_it_is_for(lines: tuple[Neighbours, Neighbours]) -> None:
    channel = _LineChannel("mine", 0, DRIVER, 2)
    threading.Timer(0.1, pickle.loads(pickle.dumps(channel)).close).start()
    with pytest.raises(RayChannelError, match="rank 0 closed its connection"):
        channel.read(LIMIT)


def test_what_fails_here_is_not_taken_for_the_end_of_a_channel(
    lines: tuple[Neighbours, Neighbours], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(lines[0], "write", full)
    with pytest.raises(OSError, match="Too many open files"):
        _LineChannel("mine", DRIVER, 0, 1).write("x")


def test_who_waits_for_another_node_empties_the_slots_of_its_neighbours(
    lines: tuple[Neighbours, Neighbours], ray_instance: None
) -> None:
    _, rank = lines
    sent = threading.Event()

    class Far:
        """A channel of Ray's, into which rank 0 writes as soon as it has got rid of the rest."""

        def read(self, timeout: float) -> str:
            if sent.is_set():
                return "far"
            raise RayChannelTimeoutError("nothing yet")

    def send() -> None:
        for tag in range(2 * SLOTS):
            rank.write(DRIVER, tag, tag)
        sent.set()

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    channel = PoliteChannel(cast(Any, Far()), GraphChannels("mine", {}))
    assert channel.read(LIMIT) == "far"
    thread.join(LIMIT)
    assert [lines[0].read(0, tag) for tag in range(2 * SLOTS)] == list(range(2 * SLOTS))
