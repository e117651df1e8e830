"""One stage's graph, taken out of the model's."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from .crossing import size_source
from .marks import is_mark
from .places import layers_of
from .trace import Trace, is_tensor

__all__ = ["Part", "build"]


@dataclass(frozen=True, eq=False)
class Part:
    """A graph that is called with a device, the model's tensors in ``targets``, and the stage's inputs.

    ``targets`` are names in the exported model; ``users`` are, for each, the layers that use it.
    """

    graph: fx.GraphModule
    targets: tuple[str, ...]
    users: tuple[frozenset[str], ...]


def build(
    trace: Trace,
    stages: dict[fx.Node, int],
    stage: int,
    again: Collection[fx.Node],
    inputs: Sequence[fx.Node],
    outputs: Sequence[fx.Node],
) -> Part:
    """The graph of a stage that takes and returns these values of the whole graph, and makes ``again`` itself."""
    return _Builder(trace, stages, stage, again, inputs).part(outputs)


class _Builder:
    """Copies nodes into a new graph; ``_new`` maps those of the whole graph to their copies."""

    def __init__(
        self,
        trace: Trace,
        stages: dict[fx.Node, int],
        stage: int,
        again: Collection[fx.Node],
        inputs: Sequence[fx.Node],
    ) -> None:
        self._trace, self._stage, self._again, self._inputs = trace, stage, again, inputs
        self._graph = fx.Graph()
        self._device = self._graph.placeholder("device")
        self._new: dict[fx.Node, fx.Node] = {}
        calls = [node for node in trace.nodes if node.op == "call_function" and stages[node] == stage]
        self._own = [node for node in calls if node not in again and not is_mark(node)]
        self._parameters: dict[str, set[str]] = {}

    def part(self, outputs: Sequence[fx.Node]) -> Part:
        self._parameter_inputs([*self._made_again(outputs), *self._own], outputs)
        for node in self._inputs:
            self._new[node] = self._graph.placeholder(node.name)
        for node in self._own:
            self._value(node)
        self._graph.output(tuple(self._value(node) for node in outputs))
        module = fx.GraphModule(self._trace.root, self._graph)
        users = tuple(frozenset(found) for found in self._parameters.values())
        return Part(module, tuple(self._parameters), users)

    def _made_again(self, outputs: Sequence[fx.Node]) -> list[fx.Node]:
        """Nodes that every stage computes for itself, if it needs them."""
        found: dict[fx.Node, None] = {}
        queue = [*outputs, *(x for node in self._own for x in node.all_input_nodes)]
        while queue:
            node = queue.pop()
            if node.op == "call_function" and node in self._again and node not in found:
                found.setdefault(node)
                queue += node.all_input_nodes
        return list(found)

    def _parameter_inputs(self, nodes: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> None:
        """A placeholder for every tensor of the model that these nodes use, in the order of the whole graph."""
        used: dict[fx.Node, set[str]] = {}
        for node in nodes:
            for value in node.all_input_nodes:
                if value.op == "get_attr" and is_tensor(value):
                    used.setdefault(value, set()).update(layers_of(node))
        for value in outputs:
            if value.op == "get_attr":
                used.setdefault(value, set())
        first: dict[str, fx.Node] = {}
        for value, layers in used.items():
            target = str(value.target)
            if target not in first:
                first[target] = self._graph.placeholder(f"model_{target.replace('.', '_')}")
            self._new[value] = first[target]
            self._parameters.setdefault(target, set()).update(layers)

    def _value(self, node: fx.Node) -> fx.Node:
        if node not in self._new:
            self._new[node] = self._copied(node)
        return self._new[node]

    def _copied(self, node: fx.Node) -> fx.Node:
        if node.op == "placeholder":
            raise AssertionError(f"{node} does not reach stage {self._stage}")
        if node.target is torch.ops.aten.sym_size.int and node.all_input_nodes[0] not in self._new:
            source = size_source(node, self._inputs)
            assert source is not None, f"no tensor of stage {self._stage} has the size {node}"
            return self._graph.call_function(node.target, (self._value(source[0]), source[1]))
        for argument in node.all_input_nodes:
            self._value(argument)
        copy = self._graph.node_copy(node, self._value)
        # The example's device is written into the graph: in its place comes that of the stage's inputs.
        copy.args, copy.kwargs = fx.node.map_aggregate((copy.args, copy.kwargs), self._moved)
        copy.meta = {}
        return copy

    def _moved(self, argument: Any) -> Any:
        return self._device if isinstance(argument, torch.device) else argument
