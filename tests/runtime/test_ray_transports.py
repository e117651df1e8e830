"""Target ray-dag on each transport, in processes of its own: as one process, and with none left behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from runtime_models import mixed, mixed_batch, sgd
from runtime_processes import eventually
from runtime_reference import EXACT, assert_close, close, operations, rows, trained_whole
from torch import nn

import piper_dsl as piper

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
