"""Pipelines side by side: the losses, gradients and weights of one process on the whole batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from runtime_cases import Case, stepped_cases
from runtime_models import WIDTH, Noisy, first_and_last, mixed, mixed_batch, sgd
from runtime_reference import EXACT, assert_close, close, only, operations, rows, trained_whole, written
from torch import nn

import piper_dsl as piper

MSE = nn.functional.mse_loss


def _trains_as_one_process(case: Case, replicas: int, **settings: Any) -> None:
    schedule = written(case.text)
    note(f"{replicas} replicas of\n{case.text}")
    stages, size = case.stages(), schedule.microbatches * replicas * case.samples
    batches = [torch.randn(2, size, WIDTH, dtype=torch.float64).unbind() for _ in range(2)]
    losses, state = trained_whole(stages, first_and_last, sgd, batches)
    arguments = {"loss_fn": first_and_last, "optimizer": sgd, "replicas": replicas, **settings}
    with piper.Pipeline(stages, schedule, **arguments) as pipeline:
        assert [pipeline.step(*batch) for batch in batches] == close(losses, EXACT)
        assert_close(pipeline.state_dict(), state, EXACT)
        assert operations(pipeline) == rows(pipeline.schedule)


@given(stepped_cases(), st.integers(1, 3))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_schedule_in_replicas_trains_as_one_process(case: Case, replicas: int) -> None:
    _trains_as_one_process(case, replicas)


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("name", ["1f1b", "interleaved_1f1b", "zb_v", "chimera", "dualpipe"])
def test_replicas_train_as_one_process(name: str, replicas: int) -> None:
    schedule = piper.load(name, p=2, m=4)
    stages = mixed(schedule.stages)
    batches = [mixed_batch(8 * replicas, seed) for seed in range(3)]
    losses, state = trained_whole(stages, MSE, sgd, batches)
    with piper.Pipeline(stages, schedule, loss_fn=MSE, optimizer=sgd, replicas=replicas) as pipeline:
        assert [pipeline.step(*batch) for batch in batches] == close(losses, EXACT)
        assert_close(pipeline.state_dict(), state, EXACT)
        assert pipeline.held() == [0] * (2 * replicas)
        assert operations(pipeline) == rows(pipeline.schedule)
        assert [len(row) for row in operations(pipeline)] == [len(row) for row in rows(schedule)] * replicas


def test_the_measured_timeline_has_the_ranks_of_all_replicas() -> None:
    schedule = piper.load("1f1b", p=2, m=3)
    with piper.Pipeline(mixed(2), schedule, loss_fn=MSE, optimizer=sgd, replicas=2) as pipeline:
        pipeline.step(*mixed_batch(6, 0))
        timeline = pipeline.last.timeline
    assert len(timeline.ranks) == 4
    assert {str(o) for o in timeline.schedule.row(3)} == {*(f"1{k}{i}" for k in "FB" for i in (3, 4, 5)), "1OPT"}
    assert piper.simulate(timeline.schedule).makespan == piper.simulate(schedule).makespan


def test_a_microbatch_meets_the_same_random_numbers_under_any_number_of_replicas() -> None:
    torch.manual_seed(0)
    stages = [Noisy().double() for _ in range(2)]
    batches = [torch.randn(2, 16, WIDTH, dtype=torch.float64).unbind() for _ in range(3)]

    def trained(replicas: int, name: str) -> tuple[list[float], Any]:
        schedule = piper.load(name, p=2, m=8 // replicas)
        with piper.Pipeline(stages, schedule, loss_fn=MSE, optimizer=sgd, replicas=replicas) as pipeline:
            return [pipeline.step(*batch) for batch in batches], pipeline.state_dict()

    losses, state = trained(1, "gpipe")
    for replicas, name in ((2, "1f1b"), (4, "zb_h1"), (8, "gpipe")):
        found, weights = trained(replicas, name)
        assert found == close(losses, EXACT)
        assert_close(weights, state, EXACT)


def test_misuse_is_refused() -> None:
    stages, schedule = mixed(2), piper.load("1f1b", p=2, m=4)
    with pytest.raises(piper.PipeError) as error:
        piper.Pipeline(stages, schedule, loss_fn=MSE, optimizer=sgd, replicas=0)
    assert (only(error).code, only(error).message) == ("P702", "a model cannot be trained by 0 replicas")
    with piper.Pipeline(stages, schedule, loss_fn=MSE, optimizer=sgd, replicas=2) as pipeline:
        for size, help_ in ((12, "8, or microbatches (m) among 1, 2, 3, 6"), (9, "8")):
            with pytest.raises(piper.PipeError) as error:
                pipeline.step(*mixed_batch(size, 0))
            message = f"a batch of {size} inputs cannot be cut into 8 equal microbatches, 4 for each of 2 replicas"
            assert (only(error).code, only(error).message) == ("P703", message)
            assert only(error).help == f"choose a batch that is a multiple of {help_}"
