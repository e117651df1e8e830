"""What is changed in place, and where no cut may go for it.

A stage sends values, not memory: what one stage changes in place, another does not see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import fx

from .errors import refusal, written_at
from .trace import Trace, inner_graphs

__all__ = ["Held", "changed_values", "held_together", "refuse_cuts"]


@dataclass(frozen=True, eq=False)
class Held:
    """The positions ``first`` to ``last`` must stay in one stage, since ``node`` changes ``root`` in place."""

    first: int
    last: int
    root: fx.Node
    node: fx.Node

    def __contains__(self, cut: int) -> bool:
        return self.first < cut <= self.last

    @property
    def what(self) -> str:
        return f"the buffer `{self.root.target}`" if self.root.op == "get_attr" else f"`{self.root.name}`"


def held_together(trace: Trace) -> list[Held]:
    """All that must not be cut apart. Raises PipeError (P704) where forward changes its inputs in place."""
    nodes = trace.nodes
    roots = _roots(nodes)
    position = {node: number for number, node in enumerate(nodes)}
    found = []
    for node in nodes:
        for argument in _written(node):
            root = roots[argument]
            if root.op == "placeholder":
                raise refusal(
                    f"forward changes its input `{root.target}` in place",
                    "work on a copy (`x = x.clone()`), or use the operation without the underscore",
                    written_at(node.stack_trace),
                )
            # A buffer is there from the start: all that touches it stays together.
            touching = [position[n] for n in nodes if any(roots[x] is root for x in n.all_input_nodes)]
            first = min(touching) if root.op == "get_attr" else position[root]
            last = max(touching) if root.op == "get_attr" else position[node]
            found.append(Held(first, last, root, node))
    return found


def changed_values(trace: Trace, held: Sequence[Held]) -> set[fx.Node]:
    """The values that are changed in place, and all that share their memory."""
    changed = {one.root for one in held}
    return {node for node, root in _roots(trace.nodes).items() if root in changed}


def refuse_cuts(held: Sequence[Held], cuts: Sequence[int]) -> None:
    """Raises PipeError (P704) where a cut goes between a value and what changes it in place."""
    for one in held:
        if any(cut in one for cut in cuts):
            raise refusal(
                f"forward changes {one.what} in place, and other stages than the one that does would not see it",
                "use the operation without the underscore, or cut elsewhere",
                written_at(one.node.stack_trace),
            )


def _roots(nodes: Sequence[fx.Node]) -> dict[fx.Node, fx.Node]:
    """By node, the value whose memory its result shares; itself, where it has its own."""
    roots: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        source = next(chain(_arguments(node, written=False), _arguments(node, written=True)), None)
        roots[node] = roots[source] if source is not None else node
    return roots


def _written(node: fx.Node) -> tuple[fx.Node, ...]:
    """The arguments that a node changes in place."""
    if node.target is torch.ops.aten.batch_norm.default:
        # Its schema does not say that it updates the running statistics, while it trains.
        *_, mean, variance, training = node.args[:6]
        return tuple(x for x in (mean, variance) if training and isinstance(x, fx.Node))
    return (*_arguments(node, written=True), *_written_inside(node))


def _arguments(node: fx.Node, written: bool) -> Iterator[fx.Node]:
    """The arguments that the schema of a node's operation marks as written, or as shared with the result."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return
    for number, argument in enumerate(node.target._schema.arguments):
        alias = argument.alias_info
        if alias is None or alias.is_write is not written:
            continue
        value = node.args[number] if number < len(node.args) else node.kwargs.get(argument.name)
        yield from (x for x in (value if isinstance(value, list | tuple) else [value]) if isinstance(x, fx.Node))


def _written_inside(node: fx.Node) -> Iterator[fx.Node]:
    """The arguments that the inner graphs of a node (a region without gradients, a branch) change."""
    graphs = inner_graphs(node)
    operands = [x for x in node.all_input_nodes if x.op != "get_attr" or x not in graphs]
    for graph in graphs.values():
        nodes = list(graph.nodes)
        roots = _roots(nodes)
        places = [inner for inner in nodes if inner.op == "placeholder"]
        changed = {roots[x] for inner in nodes for x in _written(inner)}
        # The operands follow the inner graphs, in the order of their placeholders.
        yield from (outer for outer, inner in zip(operands[-len(places) :], places, strict=False) if inner in changed)
