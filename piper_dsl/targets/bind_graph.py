"""The Ray DAG of a plan of binds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ray.dag import ClassMethodNode, DAGNode, InputNode, MultiOutputNode

from ..lower.binds import ENDING, Bind, BindPlan, loaded
from .graph_channels import GraphChannels
from .polite_tensors import PoliteTensors

__all__ = ["bind_graph"]


def bind_graph(
    plan: BindPlan,
    actors: Sequence[Any],
    transport: Any = None,
    channels: GraphChannels | None = None,
) -> DAGNode:
    """The graph that runs a step; it takes the batches of all ranks and gives how the step ended on each.

    ``transport`` is the hint on tensor edges between actors, ``channels`` are what carries the other edges; None is
    Ray's choice.
    """
    with InputNode() as batches:
        data = [batches[rank] for rank in range(len(actors))]
        nodes = {loaded(rank): actor.load.bind(data[rank]) for rank, actor in enumerate(actors)}
        for bind in plan.binds:
            nodes.update(zip(bind.results, _bound(bind, actors[bind.rank], nodes, transport), strict=True))
        endings = [
            getattr(actor, ENDING).bind(*(nodes[name] for name in unread))
            for actor, unread in zip(actors, plan.unread, strict=True)
        ]
        if channels is not None:
            for node in (*data, *nodes.values(), *endings):
                _carry(node, channels, transport)
        return MultiOutputNode(endings)


def _bound(bind: Bind, actor: Any, nodes: dict[str, Any], transport: Any) -> Sequence[DAGNode]:
    """What a bind returns."""
    method, count = getattr(actor, bind.method), len(bind.results)
    arguments = (*bind.constants, *(nodes[name] for name in bind.sources))
    if count > 1:
        found: Sequence[DAGNode] = method.options(num_returns=count).bind(*arguments)
        return found
    node = method.bind(*arguments)
    return [node.with_tensor_transport(transport=transport) if bind.targets and transport is not None else node]


def _carry(node: Any, channels: GraphChannels, transport: Any) -> None:
    """Has the channels carry what a node gives, or what accelerators do not carry of it."""
    if isinstance(node, ClassMethodNode) and node.is_class_method_output:
        _carry(node.class_method_call, channels, transport)
    hinted = node.type_hint.requires_accelerator()
    node.type_hint = PoliteTensors(transport, channels) if hinted else channels
