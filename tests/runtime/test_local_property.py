"""Any schedule that checks, on any chain of stages: the losses and gradients of one process."""

from __future__ import annotations

import copy

import torch
from hypothesis import HealthCheck, given, note, settings
from runtime_cases import Case, cases
from runtime_models import WIDTH, first_and_last
from runtime_reference import (
    EXACT,
    assert_close_or_zero,
    close,
    operations,
    rows,
    whole_gradients,
    written,
)

import piper_dsl as piper


@given(cases())
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_schedule_gives_what_one_process_gives(case: Case) -> None:
    note(case.text)
    schedule = written(case.text)
    assert piper.check(schedule) == ()
    stages = case.stages()
    inputs, targets = torch.randn(2, schedule.microbatches * case.samples, WIDTH, dtype=torch.float64).unbind()
    losses, gradients = whole_gradients(stages, first_and_last, [(inputs, targets)])
    with piper.Pipeline(copy.deepcopy(stages), schedule, loss_fn=first_and_last) as pipeline:
        assert pipeline.step(inputs, targets) == close(losses[0], EXACT)
        assert_close_or_zero(pipeline.gradients(), gradients, EXACT)
        assert operations(pipeline) == rows(schedule)
        assert pipeline.held() == [0] * schedule.ranks
