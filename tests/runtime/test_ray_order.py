"""The order that Ray itself gives to the binds of a schedule on accelerator edges, and what we say it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray.dag import DAGNode

import piper_dsl as piper
from piper_dsl.lower.binds import ENDING, METHODS, BindPlan, plan_binds
from piper_dsl.lower.call_order import COMPUTE, READ, WRITE, CallStep, call_order
from piper_dsl.plan import Plan, Transport, place_transfers
from piper_dsl.simulate import Costs
from piper_dsl.targets import own_order
from piper_dsl.targets.bind_graph import bind_graph
from piper_dsl.targets.gloo_communicator import GlooCommunicator
from piper_dsl.targets.own_order import OrderWarning, compile_in_order, orders_of

_Stub = type("Stub", (), {name: lambda self, *values: None for name in [*METHODS.values(), "load", ENDING]})


@pytest.fixture(scope="module")
def actors(ray_instance: None) -> Iterator[list[Any]]:
    """Actors with the methods of ranks and nothing in them: graphs are compiled on them, not run."""
    made = [ray.remote(_Stub).options(num_cpus=0).remote() for _ in range(4)]
    yield made
    for actor in made:
        ray.kill(actor)


def _graph(plan: BindPlan, actors: list[Any]) -> DAGNode:
    return bind_graph(plan, actors, GlooCommunicator(actors))


def _orders(compiled: Any, actors: list[Any]) -> list[list[CallStep]]:
    """The orders of a compiled graph, which ends: an actor has one graph at a time."""
    try:
        return orders_of(compiled, actors)
    finally:
        compiled.teardown()


def _as_ray_has_it(plan: BindPlan, actors: list[Any]) -> list[list[str]]:
    """By rank, computations and the two ends of messages in the order of Ray's schedule."""
    orders = _orders(_graph(plan, actors).experimental_compile(_max_inflight_executions=1), actors)
    rows = []
    for rank, order in enumerate(orders):
        binds = [bind for bind in plan.binds if bind.rank == rank]
        row = []
        for call, part in order:
            bind = binds[call - 1] if 0 < call <= len(binds) else None
            if bind is not None and part == COMPUTE:
                row.append(bind.name)
            elif bind is not None and part == READ and bind.receives:
                row.append(f"read {bind.sources[0]}")
            elif bind is not None and part == WRITE and bind.targets:
                row.append(f"write {bind.name}")
        rows.append(row)
    return rows


def _as_we_say(plan: Plan, binds: BindPlan) -> list[list[str]]:
    schedule, names = plan.schedule, {bind.operation: bind.name for bind in binds.binds}

    def name(code: int) -> str:
        index, what = divmod(code, 3)
        if what == 0:
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


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("1f1b", {"p": 3, "m": 4}), ("interleaved_1f1b", {"p": 2, "m": 4}), ("zb_v", {"p": 2, "m": 4})],
)
def test_ray_takes_the_order_of_a_program(name: str, parameters: dict[str, int], actors: list[Any]) -> None:
    program = piper.lower(piper.load(name, **parameters), "ray-accelerator", "event")
    binds = plan_binds(program)
    mine = actors[: program.ranks]
    wanted = call_order(program, binds)
    compiled = compile_in_order(_graph(binds, mine), wanted, mine, str, _max_inflight_executions=1)
    assert _orders(compiled, mine) == wanted
    compiled = _graph(binds, mine).experimental_compile(_max_inflight_executions=1)
    assert _orders(compiled, mine) != wanted


def test_a_ray_that_keeps_its_own_order_is_warned_of(monkeypatch: pytest.MonkeyPatch, actors: list[Any]) -> None:
    monkeypatch.setattr(own_order, "_MAKER", "a_name_that_ray_does_not_have")
    program = piper.lower(piper.load("1f1b", p=3, m=4), "ray-accelerator", "event")
    binds = plan_binds(program)
    mine = actors[: program.ranks]
    with pytest.warns(OrderWarning, match=r"in its own order: 21 instead of 18$"):
        compiled = compile_in_order(
            _graph(binds, mine),
            call_order(program, binds),
            mine,
            lambda: "21 instead of 18",
            _max_inflight_executions=1,
        )
    compiled.teardown()
