"""A pipeline on target ray-dag that has nothing to do uses no processor, whatever its messages go through."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from runtime_models import mixed, mixed_batch, sgd
from runtime_reference import EXACT, close, trained_whole
from torch import nn

import piper_dsl as piper
from piper_dsl.targets import ray_dag
from piper_dsl.targets.graph_channels import GraphChannels

LIMIT = 60.0
WATCHED = 1.5
"""Seconds."""


def _seconds(pids: Iterable[int]) -> float:
    """What processes have used of a processor so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class FarChannels(GraphChannels):
    """As between nodes, and where processes may not talk to each other."""

    def near(self, number: int) -> frozenset[int]:
        return frozenset()


@pytest.mark.parametrize("channels", [GraphChannels, FarChannels], ids=["lines", "Ray's channels"])
def test_who_waits_does_not_spin(
    channels: type[GraphChannels], own_ranks: Callable[[], set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_dag, "GraphChannels", channels)
    batch, stages = mixed_batch(4, 0), mixed(2)
    losses, _ = trained_whole(stages, nn.functional.mse_loss, sgd, [batch] * 3)
    arguments = {"loss_fn": nn.functional.mse_loss, "optimizer": sgd, "target": "ray-dag", "timeout": LIMIT}
    with piper.Pipeline(stages, piper.load("1f1b", p=2, m=2), **arguments) as pipeline:
        found = [pipeline.step(*batch), pipeline.step(*batch)]
        processes = own_ranks() | {os.getpid()}
        assert len(processes) == 3
        before = _seconds(processes)
        time.sleep(WATCHED)
        assert _seconds(processes) - before < 0.1 * WATCHED
        # Who slept wakes.
        assert [*found, pipeline.step(*batch)] == close(losses, EXACT)
