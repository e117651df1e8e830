"""The Ray DAG of a schedule: its nodes, who reads whom, and which edges carry the accelerator's hint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray.dag import ClassMethodNode, DAGNode, InputAttributeNode, InputNode, MultiOutputNode
from runtime_reference import rows, written

import piper_dsl as piper
from piper_dsl.lower.binds import ENDING, METHODS, plan_binds
from piper_dsl.targets.bind_graph import bind_graph

VEE_SPLIT = """
ranks 2
stages 4
microbatches 2
place vee
rank 0: 0F0 0F1 3F0 3I0 3F1 3I1 3W0 0I0 0W0 3W1 0I1 0W1 0OPT 3OPT
rank 1: 1F0 2F0 1F1 2F1 2I0 1I0 2W0 2I1 1I1 1W0 2W1 1W1 1OPT 2OPT
"""
SCHEDULES = {
    "gpipe": piper.load("gpipe", p=2, m=4),
    "1f1b": piper.load("1f1b", p=3, m=4),
    "interleaved_1f1b": piper.load("interleaved_1f1b", p=2, m=4),
    "zb_h1": piper.load("zb_h1", p=3, m=4),
    "vee, split": written(VEE_SPLIT),
    "one rank": piper.load("interleaved_1f1b", p=1, m=2),
    "recomputed": written("ranks 2\nmicrobatches 2\nrank r { F[0:2] for i in 0:2 { R[i] B[i] } OPT }"),
    "evaluation": written("ranks 2\nmicrobatches 2\nrank r { F[0:2] }"),
}
schedules = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)

_Stub = type("Stub", (), {name: lambda self, *values: None for name in [*METHODS.values(), "load", ENDING]})


@pytest.fixture(scope="module")
def actors(ray_instance: None) -> Iterator[list[Any]]:
    """Actors with the methods of ranks and nothing in them: a DAG is bound to them, not run."""
    made = [ray.remote(_Stub).options(num_cpus=0).remote() for _ in range(3)]
    yield made
    for actor in made:
        ray.kill(actor)


def _nodes(output: DAGNode) -> list[DAGNode]:
    found: dict[int, DAGNode] = {}
    waiting = [output]
    while waiting:
        node = waiting.pop()
        if id(node) not in found:
            found[id(node)] = node
            waiting += node._get_all_child_nodes()
    return list(found.values())


def _actor(node: ClassMethodNode) -> str:
    return str(node._get_actor_handle()._actor_id.hex())


def _crossing(schedule: piper.Schedule) -> int:
    """How many messages go between ranks: one a microbatch and direction for every such edge."""
    trained = any(o.kind is not piper.Kind.F for row in rows(schedule) for o in row)
    edges = [(a, b) for a, b in schedule.graph.edges if schedule.placement(a) != schedule.placement(b)]
    return len(edges) * schedule.microbatches * (2 if trained else 1)


@schedules
@pytest.mark.parametrize("transport", [None, "accelerator"])
def test_only_edges_between_ranks_carry_the_hint(
    schedule: piper.Schedule, transport: str | None, actors: list[Any]
) -> None:
    # Case G11: local edges, tokens, data and results carry none.
    plan = plan_binds(piper.lower(schedule))
    nodes = _nodes(bind_graph(plan, actors[: schedule.ranks], transport))
    calls = [node for node in nodes if isinstance(node, ClassMethodNode)]
    readers: dict[int, set[str]] = {}
    for call in calls:
        for child in call._get_all_child_nodes():
            readers.setdefault(id(child), set()).add(_actor(call))
    operations = [call for call in calls if call.get_method_name() != ENDING]
    crossing = {id(c) for c in operations if readers.get(id(c), {_actor(c)}) != {_actor(c)}}
    hinted = {id(node) for node in nodes if node.type_hint is not None and node.type_hint.requires_accelerator()}
    assert len(crossing) == _crossing(schedule)
    assert hinted == (crossing if transport else set())
    for call in operations:
        if id(call) in crossing:
            assert call.get_method_name() in ("forward", "backward", "backward_input")
            # What a rank sends is read there alone: Ray refuses a hinted output with a reader at home.
            assert len(readers[id(call)]) == 1
            assert _actor(call) not in readers[id(call)]


@schedules
def test_every_operation_is_one_call_and_every_call_is_read(schedule: piper.Schedule, actors: list[Any]) -> None:
    # Case G2: nothing is a leaf, so nothing is dropped.
    plan = plan_binds(piper.lower(schedule))
    output = bind_graph(plan, actors[: schedule.ranks])
    nodes = _nodes(output)
    calls = [node for node in nodes if isinstance(node, ClassMethodNode)]
    assert len(calls) == len(schedule) + 2 * schedule.ranks  # and load and the end of every rank
    assert sum(isinstance(node, InputNode) for node in nodes) == 1
    assert sum(isinstance(node, InputAttributeNode) for node in nodes) == schedule.ranks
    read = {id(child) for node in nodes for child in node._get_all_child_nodes()}
    assert [node for node in nodes if id(node) not in read] == [output]
    assert isinstance(output, MultiOutputNode)
    assert [node.get_method_name() for node in output._get_all_child_nodes()] == [ENDING] * schedule.ranks


@schedules
def test_binds_keep_the_order_of_every_rank_and_read_what_exists(schedule: piper.Schedule) -> None:
    plan = plan_binds(piper.lower(schedule))
    assert [tuple(b.operation for b in plan.binds if b.rank == r) for r in range(schedule.ranks)] == rows(schedule)
    owner = {f"loaded{rank}": rank for rank in range(schedule.ranks)}
    messages = []
    for bind in plan.binds:
        for source in bind.sources:
            assert bind.receives == (owner[source] != bind.rank)
        for result in bind.results:
            assert result not in owner
            owner[result] = bind.rank
        messages += bind.sources if bind.receives else []
        assert bind.method == METHODS[bind.operation.kind]
    assert len(messages) == len(set(messages)) == _crossing(schedule)
    assert sorted(messages) == sorted(name for bind in plan.binds if bind.targets for name in bind.results)
    frees = [(b.operation.stage, b.operation.microbatch) for b in plan.binds if b.frees]
    assert sorted(frees) == [(s, i) for s in range(schedule.stages) for i in range(schedule.microbatches)]
