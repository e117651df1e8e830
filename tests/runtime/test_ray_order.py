"""The order that Ray itself gives to the binds of a schedule on accelerator edges, and what we say it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ray

import piper_dsl as piper
from piper_dsl.lower.binds import METHODS, BindPlan, plan_binds
from piper_dsl.plan import Plan, Transport, place_transfers
from piper_dsl.plan.plan import COMPUTE
from piper_dsl.simulate import Costs
from piper_dsl.targets.gloo_communicator import GlooCommunicator
from piper_dsl.targets.ray_dag import bind_graph

_Stub = type("Stub", (), {name: lambda self, *values: None for name in [*METHODS.values(), "load", "finish"]})


@pytest.fixture(scope="module")
def actors(ray_instance: None) -> Iterator[list[Any]]:
    """Actors with the methods of ranks and nothing in them: graphs are compiled on them, not run."""
    made = [ray.remote(_Stub).options(num_cpus=0).remote() for _ in range(4)]
    yield made
    for actor in made:
        ray.kill(actor)


def _as_ray_has_it(plan: BindPlan, actors: list[Any]) -> list[list[str]]:
    """Compiles the binds; by rank, computations and the two ends of messages in the order of Ray's schedule."""
    graph = bind_graph(plan, actors, GlooCommunicator(actors))
    compiled = graph.experimental_compile(_max_inflight_executions=1)
    try:
        schedules = {actor._actor_id: steps for actor, steps in compiled.actor_to_execution_schedule.items()}
    finally:
        compiled.teardown()
    rows = []
    for rank, actor in enumerate(actors):
        binds = [bind for bind in plan.binds if bind.rank == rank]
        row = []
        for step in schedules[actor._actor_id]:
            bind = binds[step.exec_task_idx - 1] if 0 < step.exec_task_idx <= len(binds) else None
            if bind is not None and step.type.value == "COMPUTE":
                row.append(bind.result)
            elif bind is not None and step.type.value == "READ" and bind.receives:
                row.append(f"read {bind.source}")
            elif bind is not None and step.type.value == "WRITE" and bind.target is not None:
                row.append(f"write {bind.result}")
        rows.append(row)
    return rows


def _as_we_say(plan: Plan, binds: BindPlan) -> list[list[str]]:
    schedule, names = plan.schedule, {bind.operation: bind.result for bind in binds.binds}

    def name(code: int) -> str:
        index, what = divmod(code, 3)
        if what == COMPUTE:
            return names[schedule.operation(int(plan.slots.first[index]))]
        end = "write" if what == 1 else "read"
        return f"{end} {names[schedule.operation(int(plan.transfers.producer[index]))]}"

    return [[name(code) for code in row.tolist()] for row in plan.rows]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("1f1b", {"p": 4, "m": 8}),
        ("interleaved_1f1b", {"p": 4, "m": 8}),
        ("1f1b_v", {"p": 4, "m": 8}),
        ("zb_h1", {"p": 3, "m": 5}),
    ],
)
def test_ray_orders_reads_and_writes_as_we_say(name: str, parameters: dict[str, int], actors: list[Any]) -> None:
    schedule = piper.load(name, **parameters)
    binds = plan_binds(piper.lower(schedule))
    said = place_transfers(schedule, "ray", Transport.parse("ray-accelerator"), Costs())
    assert _as_we_say(said, binds) == _as_ray_has_it(binds, actors[: schedule.ranks])
