"""Channels of compiled graphs whose other end is gone: Ray's own error, which a target tells as a death."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from ray.exceptions import RayChannelError
from runtime_models import WIDTH, sgd
from runtime_processes import eventually
from runtime_reference import only
from torch import nn, rand

import piper_dsl as piper
from piper_dsl.targets.crew import Crew
from piper_dsl.targets.graph_channels import GraphChannels, _InboxChannel
from piper_dsl.targets.inbox import Address, Inbox
from piper_dsl.targets.ray_dag import RayDagTarget

NOBODY = 1 << 22
"""The number of no process: the kernel gives smaller ones."""


def test_who_reads_or_writes_through_a_process_that_is_gone_is_told_by_rays_error() -> None:
    channel = _InboxChannel(1, Address("here", NOBODY, 3, 4))
    with pytest.raises(RayChannelError, match="which reads, is gone"):
        channel.ensure_registered_as_writer()
    with pytest.raises(RayChannelError, match="which reads, is gone"):
        channel.write(b"x")
    with pytest.raises(RayChannelError, match="the inbox is gone"):
        channel.read()
    # One that was here once is no other's.
    inbox = Inbox("here")
    channel = _InboxChannel(1, inbox.address)
    del inbox
    with pytest.raises(RayChannelError, match="the inbox is gone"):
        channel.read()


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
