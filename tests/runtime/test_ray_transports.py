"""Target ray-dag on each transport, in processes of its own: as one process, and with none left behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from runtime_models import mixed, mixed_batch, sgd
from runtime_processes import eventually
from runtime_reference import EXACT, assert_close, close, operations, rows, trained_whole
from torch import nn

import piper_dsl as piper
from piper_dsl.targets.ray_dag import RayDagTarget

pytestmark = pytest.mark.usefixtures("ray_instance")

MSE = nn.functional.mse_loss
Ranks = Callable[[], set[int]]
LIMIT = 60.0
"""Seconds a step may take, so that a hang ends as an error."""
GONE = 10.0
"""Seconds after close() in which the last process may still be on its way out."""


@pytest.mark.parametrize(
    ("name", "p", "m", "transport"),
    [("1f1b", 2, 4, "shared-memory"), ("interleaved_1f1b", 2, 4, "gloo"), ("chimera", 4, 8, "gloo")],
)
def test_a_graph_trains_as_one_process_and_leaves_none(
    name: str, p: int, m: int, transport: str, own_ranks: Ranks
) -> None:
    schedule = piper.load(name, p=p, m=m)
    stages = mixed(schedule.stages)
    batches = [mixed_batch(2 * m, seed) for seed in range(3)]
    losses, state = trained_whole(stages, MSE, sgd, batches)
    arguments = {"loss_fn": MSE, "optimizer": sgd, "target": "ray-dag", "timeout": LIMIT, "transport": transport}
    with piper.Pipeline(stages, schedule, **arguments) as pipeline:
        assert [pipeline.step(*batch) for batch in batches] == close(losses, EXACT)
        assert_close(pipeline.state_dict(), state, EXACT)
        assert operations(pipeline) == rows(schedule)
        assert pipeline.held() == [0] * p
        assert len(own_ranks()) == p
    assert eventually(lambda: not own_ranks(), GONE)


@pytest.mark.parametrize(("transport", "sized"), [("shared-memory", False), ("gloo", True)])
def test_channels_of_rays_are_no_larger_than_needed_where_there_are_any(transport: str, sized: bool) -> None:
    arguments = {"loss_fn": MSE, "optimizer": sgd, "target": "ray-dag", "transport": transport}
    with piper.Pipeline(mixed(2), piper.load("1f1b", p=2, m=4), **arguments) as pipeline:
        target = cast(RayDagTarget, pipeline._target)
        environment = target._environment(pipeline._cut(*mixed_batch(8, 0), training=True))
    assert ("runtime_env" in environment) == sized
    if sized:
        assert 4096 < int(environment["runtime_env"]["env_vars"]["RAY_CGRAPH_buffer_size_bytes"]) < 8192
