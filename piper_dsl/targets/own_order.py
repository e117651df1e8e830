"""Our order of reads and writes in the place of Ray's, for one compilation of a graph.

Ray places a read together with the write of its sender, however much the reader could compute before; on
accelerators, where a message holds both sides, that makes interleaved schedules twice as long. The function
that makes Ray's order is private (Ray 2.55 to 2.60 have it). So what Ray has made is compared with what was
wanted, and where it is something else, a warning says what that costs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ray.dag import DAGNode, compiled_dag_node

from ..lower.call_order import CallStep

__all__ = ["OrderWarning", "compile_in_order", "orders_of"]

_MAKER = "_generate_actor_to_execution_schedule"


class OrderWarning(UserWarning):
    """Ray runs messages in its own order."""


def compile_in_order(
    graph: DAGNode, rows: list[list[CallStep]], actors: Sequence[Any], loss: Callable[[], str], **options: Any
) -> Any:
    """The compiled graph, which runs the parts of the calls on ``actors`` as ``rows`` say.

    Warns with :class:`OrderWarning` where this version of Ray keeps its own order; ``loss`` says what that costs.
    """
    with _in_place_of_ray(rows, actors):
        compiled = graph.experimental_compile(**options)
    if orders_of(compiled, actors) != rows:
        warnings.warn(f"this version of Ray runs messages in its own order: {loss()}", OrderWarning, stacklevel=2)
    return compiled


@contextmanager
def _in_place_of_ray(rows: Sequence[Sequence[CallStep]], actors: Sequence[Any]) -> Iterator[None]:
    theirs = getattr(compiled_dag_node, _MAKER, None)
    if theirs is None:
        yield
        return
    setattr(compiled_dag_node, _MAKER, lambda graph: _ordered(graph, rows, actors))
    try:
        yield
    finally:
        setattr(compiled_dag_node, _MAKER, theirs)


def _ordered(graph: Any, rows: Sequence[Sequence[CallStep]], actors: Sequence[Any]) -> dict[Any, list[Any]]:
    """The nodes of Ray's graph of reads, computations and writes, by actor, in our order."""
    nodes: dict[Any, dict[CallStep, Any]] = {}
    for parts in graph.values():
        for node in parts.values():
            step = (node.operation.exec_task_idx, node.operation.type.value)
            nodes.setdefault(node.actor_handle, {})[step] = node
    return {actor: [nodes[actor][step] for step in row] for actor, row in zip(actors, rows, strict=True)}


def orders_of(compiled: Any, actors: Sequence[Any]) -> list[list[CallStep]]:
    """The order that a compiled graph has, in the same form."""
    schedules = {actor._actor_id: steps for actor, steps in compiled.actor_to_execution_schedule.items()}
    return [[(step.exec_task_idx, step.type.value) for step in schedules[actor._actor_id]] for actor in actors]
