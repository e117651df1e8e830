"""What is measured: a timeline like a predicted one, and costs that predict the step they come from."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
import torch
from runtime_models import WIDTH, mixed, mixed_batch, sgd
from runtime_reference import written
from torch import nn

import piper_dsl as piper
from piper_dsl.draw.text import timeline_text
from piper_dsl.ir.profile import read_profile
from piper_dsl.runtime.measure import StepReport, measured_costs
from piper_dsl.runtime.profile import profile_text
from piper_dsl.runtime.report import RankReport

MSE = nn.functional.mse_loss


class Sleeper(nn.Linear):
    """Takes its time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(WIDTH, WIDTH)
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return super().forward(x)


@pytest.mark.usefixtures("warm")
def test_costs_of_a_step_predict_it_and_a_profile_says_the_same(tmp_path: object) -> None:
    schedule = piper.load("1f1b", p=2, m=4)
    x = torch.rand(4, WIDTH)
    arguments = {"loss_fn": MSE, "optimizer": sgd, "target": "ray-program", "timeout": 60.0}
    with piper.Pipeline([Sleeper(0.03), Sleeper(0.06)], schedule, **arguments) as pipeline:
        reports = []
        for _ in range(4):
            pipeline.step(x, x)
            reports.append(pipeline.last)
    costs = measured_costs(reports[1:])
    found = dict(costs.kinds)[(piper.Kind.F,)]
    assert 0.03 <= found[0] < 0.045
    assert 0.06 <= found[1] < 0.09
    predicted = piper.simulate(schedule, costs).makespan
    # Generous, for machines that others use; benchmarks say how close it comes.
    assert 0.6 < reports[-1].makespan / predicted < 1.6
    path = tmp_path / "costs.toml"
    path.write_text(profile_text(costs, path.name, "measured"))
    assert read_profile(str(path)) == costs


def test_costs_are_means_within_a_step_and_medians_over_steps() -> None:
    # One rank, one operation after the other; the last forward takes long, and so does everything in the last step.
    schedule = piper.load("gpipe", p=1, m=4)
    durations = np.where(schedule.kind == piper.Kind.F, [1, 1, 1, 5, 0, 0, 0, 0, 0], 3.0)
    ends = np.cumsum(durations)
    operations = np.stack([schedule.kind, schedule.stage, schedule.microbatch], axis=1).astype(np.int32)
    reports = [
        StepReport(schedule, (RankReport({}, operations, slow * np.stack([ends - durations, ends], axis=1)),), 1.0)
        for slow in (1.0, 1.0, 100.0)
    ]
    costs = dict(measured_costs(reports).kinds)
    assert (costs[(piper.Kind.F,)], costs[(piper.Kind.B,)]) == ((2.0,), (3.0,))


@pytest.mark.parametrize("name", ["zb_v", "dualpipev"])
def test_a_measured_timeline_is_one_of_its_schedule(name: str) -> None:
    schedule = piper.load(name, p=2, m=4)
    with piper.Pipeline(mixed(4), schedule, loss_fn=MSE, optimizer=sgd) as pipeline:
        pipeline.step(*mixed_batch(8, 0))
        timeline = pipeline.last.timeline
    assert timeline.schedule is schedule
    assert timeline.start.min() == 0.0
    assert timeline.makespan == pipeline.last.makespan > 0
    assert np.all(timeline.end >= timeline.start)
    # Rows run in order, their OPT apart; halves of an overlapped slot have the same times.
    for rank in range(2):
        own = slice(*schedule.offsets[rank : rank + 2])
        compute = schedule.kind[own] != piper.Kind.OPT
        ends = list(zip(timeline.start[own][compute], timeline.end[own][compute], strict=True))
        for before, after in pairwise(ends):
            assert after == before or after[0] >= before[1]
    assert timeline.ranks[0].busy > 0
    assert 0 <= timeline.bubble.idle < 1
    assert timeline.critical_path
    assert timeline_text(timeline)


def test_written_transfers_have_times_too() -> None:
    text = "ranks 2\nmicrobatches 1\nrank 0: F0 SEND_F0 RECV_B0 B0\nrank 1: RECV_F0 F0 B0 SEND_B0"
    with piper.Pipeline(mixed(2), written(text), loss_fn=MSE) as pipeline:
        pipeline.step(*mixed_batch(2, 0))
        assert not np.isnan(pipeline.last.times).any()
