"""The calls of a Ray DAG, made in their order without Ray: any stage graph gives what target local gives."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import HealthCheck, given, note, settings
from runtime_models import WIDTH, Mix
from runtime_reference import EXACT, assert_close, close
from torch import nn

import piper_dsl as piper
from piper_dsl.lower.binds import ENDING, loaded, plan_binds
from piper_dsl.runtime.batch import split_batch
from piper_dsl.runtime.launch import rank_specs
from piper_dsl.runtime.settings import Settings
from piper_dsl.targets.rank_actor import _RankActor
from piper_dsl.testing import WrittenSchedule, schedules

MSE = nn.functional.mse_loss


def _ended(
    schedule: piper.Schedule, stages: list[nn.Module], data: dict[str, Any]
) -> tuple[dict[Any, float], dict[int, Any]]:
    """Losses and gradients of the calls of the schedule's binds."""
    program = piper.lower(schedule)
    plan = plan_binds(program)
    specs = rank_specs(stages, schedule, program, MSE, None, Settings())
    actors = [_RankActor(spec) for spec in specs]
    for actor in actors:
        # None fails, which is all that they would tell each other.
        actor._wire = SimpleNamespace(any=bool)  # type: ignore[assignment]
    batches = split_batch(
        0, **data, microbatches=schedule.microbatches, graph=schedule.graph, placement=schedule.placement
    )
    results: dict[str, Any] = {loaded(rank): actor.load(batches[rank]) for rank, actor in enumerate(actors)}
    for bind in plan.binds:
        arrived = [results[name] if name.startswith("loaded") else results.pop(name) for name in bind.sources]
        found = getattr(actors[bind.rank], bind.method)(*bind.constants, *pickle.loads(pickle.dumps(arrived)))
        results.update(zip(bind.results, found if len(bind.results) > 1 else (found,), strict=True))
    unread = [[results.pop(name) for name in names if name in results] for names in plan.unread]
    # What is left are the tokens of loading that operations have read: everything else has had one reader.
    assert all(name.startswith("loaded") for name in results)
    reports = [getattr(actor, ENDING)(*read) for actor, read in zip(actors, unread, strict=True)]
    losses = {key: loss for report in reports for key, loss in report.losses.items()}
    return losses, {s: g for actor in actors for s, g in actor.gradients().items()}


@given(schedules(max_ranks=4, max_stages=6, max_microbatches=2, copies=False, ties=False, optimizer=False))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_stage_graph_gives_what_local_gives(case: WrittenSchedule) -> None:
    note(case.text)
    schedule = case.schedule
    torch.manual_seed(0)
    stages = [Mix().double() for _ in range(schedule.stages)]
    x, y = torch.randn(2, schedule.microbatches * 2, WIDTH, dtype=torch.float64)
    graph = schedule.graph
    data = {
        "inputs": {s: x + s for s in range(graph.stages) if not graph.predecessors[s]},
        "targets": {s: y - s for s in range(graph.stages) if not graph.successors[s]},
    }
    with piper.Pipeline(copy.deepcopy(stages), schedule, loss_fn=MSE) as pipeline:
        pipeline.step(**data)
        wanted, gradients = pipeline.last.losses, pipeline.gradients()
    losses, found = _ended(schedule, stages, data)
    assert losses == close(wanted, EXACT)
    assert_close(found, gradients, EXACT)
