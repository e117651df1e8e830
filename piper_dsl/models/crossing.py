"""What crosses the boundaries: every value that a later stage needs goes through all stages between.

Only tensors of data and parameters cross. Numbers (sizes, and what arithmetic on them gives) and tensors that
follow from numbers and constants alone (masks, positions, rotary angles) are made again by the stage that needs
them, from the sizes of the tensors it has anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import torch
from torch import fx, nn

from .trace import Trace, inner_graphs, is_number

__all__ = ["crossings", "remade", "size_source"]


def remade(trace: Trace, changed: Collection[fx.Node]) -> set[fx.Node]:
    """What a stage makes again instead of receiving it; ``changed`` are values that are changed in place.

    Numbers are made again from whatever tensor they are read from, unless that is changed.
    """
    found: set[fx.Node] = set()
    for node in trace.nodes:
        if node in changed:
            continue
        if node.op == "get_attr":
            again = not isinstance(trace.attribute(node.target), nn.Parameter)
        else:
            again = node.op == "call_function" and _is_pure(node)
            again = again and all(x in found or (is_number(node) and x not in changed) for x in node.all_input_nodes)
        if again:
            found.add(node)
    return found


def _is_pure(node: fx.Node) -> bool:
    """Whether a node gives the same again for the same, and changes nothing."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return all(_is_pure(inner) for graph in inner_graphs(node).values() for inner in graph.nodes)
    return not node.target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in node.target.tags


def crossings(
    trace: Trace, stages: Mapping[fx.Node, int], count: int, again: Collection[fx.Node]
) -> list[tuple[fx.Node, ...]]:
    """Per stage, the tensors it takes, in the order they are made; after them, those the model returns.

    ``stages`` says where every node is computed, ``again`` what is made again where it is needed.
    """
    order = {node: number for number, node in enumerate(trace.nodes)}
    own: list[list[fx.Node]] = [[] for _ in range(count)]
    for node in trace.nodes:
        if node.op == "call_function" and node not in again:
            own[stages[node]].append(node)
    taken = [trace.results]
    for stage in reversed(range(1, count)):
        values = [*taken[0], *(x for node in own[stage] for x in node.all_input_nodes)]
        needed = _needed(values, again, stages, stage)
        taken.insert(0, tuple(sorted(needed, key=order.__getitem__)))
    return [trace.inputs, *taken]


def _needed(
    values: list[fx.Node], again: Collection[fx.Node], stages: Mapping[fx.Node, int], stage: int
) -> set[fx.Node]:
    """The tensors of earlier stages from which a stage can make all of these values."""
    needed: set[fx.Node] = set()
    sizes: list[fx.Node] = []
    queue, seen = values, set()
    while queue:
        node = queue.pop()
        if node in seen or node.op == "get_attr":
            continue
        seen.add(node)
        if node.target is torch.ops.aten.sym_size.int:
            sizes.append(node)
        elif node in again:
            queue += node.all_input_nodes
        elif stages[node] < stage:
            needed.add(node)
    for size in sizes:
        source = size.all_input_nodes[0]
        if stages[source] < stage and size_source(size, needed) is None:
            needed.add(source)
    return needed


def size_source(size: fx.Node, tensors: Iterable[fx.Node]) -> tuple[fx.Node, int] | None:
    """One of the tensors that has the size too, and its dimension."""
    wanted = size.meta["val"]
    for tensor in tensors:
        for dimension, length in enumerate(tensor.meta["val"].shape):
            if isinstance(length, torch.SymInt) and length.node.expr == wanted.node.expr:
                return tensor, dimension
    return None
