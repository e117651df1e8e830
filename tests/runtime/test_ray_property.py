"""Any schedule that checks, on any chain of stages and both Ray targets: the losses and gradients of one process."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import HealthCheck, given, note, settings
from runtime_cases import Case, cases
from runtime_models import WIDTH, first_and_last
from runtime_reference import EXACT, assert_close_or_zero, close, operations, rows, whole_gradients, written

import piper_dsl as piper

pytestmark = pytest.mark.usefixtures("warm")


EXAMPLES = int(os.environ.get("PIPER_EXAMPLES", "2"))
"""On ray-dag, where every one takes new processes, which is some seconds."""


def agrees(target: str, case: Case) -> None:
    note(case.text)
    schedule, stages = written(case.text), case.stages()
    batch = torch.randn(2, schedule.microbatches * case.samples, WIDTH, dtype=torch.float64).unbind()
    losses, gradients = whole_gradients(stages, first_and_last, [batch])
    with piper.Pipeline(stages, schedule, loss_fn=first_and_last, target=target, timeout=60.0) as pipeline:
        assert pipeline.step(*batch) == close(losses[0], EXACT)
        assert_close_or_zero(pipeline.gradients(), gradients, EXACT)
        assert operations(pipeline) == rows(schedule)


@given(cases())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_schedule_on_any_chain_on_ray_program(case: Case) -> None:
    agrees("ray-program", case)


@pytest.mark.timeout(60 + 30 * EXAMPLES)
@given(cases())
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_schedule_on_any_chain_on_ray_dag(case: Case) -> None:
    agrees("ray-dag", case)
