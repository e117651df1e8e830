"""Where a graph can be cut, and by what names: the calls of a model's layers, and its marks."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Collection, Sequence
from difflib import get_close_matches

from torch import fx, nn

from .errors import refusal
from .marks import is_mark
from .trace import Trace, inner_graphs, is_number

__all__ = ["Cut", "calls", "computes", "cut_nodes", "marks", "named", "refuse_empty_stages", "stages_of_nodes"]

Cut = str | int
"""Before the first call of a layer, by its qualified name, or at a mark, by its number."""


def calls(trace: Trace) -> dict[str, int]:
    """Where every layer is first called: by qualified name, the position of the first node of the call."""
    found: dict[str, int] = {}
    for position, node in enumerate(trace.nodes):
        for name in () if is_item(node) else layers_of(node):
            found.setdefault(name, position)
    return found


def is_item(node: fx.Node) -> bool:
    """Whether a node takes a part of an operation's tuple; it stays with the operation."""
    return node.target is operator.getitem


def layers_of(node: fx.Node) -> list[str]:
    """The qualified names of the layers whose call a node belongs to, outermost first; not the model itself."""
    if node.op != "call_function":
        return []
    stack = (node.meta.get("nn_module_stack") or {}).values()
    names = [str(name).split("@")[0] for name, _ in stack]
    inside = [name for graph in inner_graphs(node).values() for inner in graph.nodes for name in layers_of(inner)]
    return [name for name in [*names, *inside] if name and not name.startswith("_empty_nn_module_stack")]


def marks(trace: Trace) -> list[int]:
    """The positions of the marks."""
    return [position for position, node in enumerate(trace.nodes) if is_mark(node)]


def cut_nodes(trace: Trace, cuts: Sequence[Cut]) -> list[int]:
    """The positions at which new stages begin. Raises PipeError (P704) where there are no such places."""
    called, marked = calls(trace), marks(trace)
    found = [called.get(cut, -1) if isinstance(cut, str) else marked[cut] for cut in cuts]
    for cut, position in zip(cuts, found, strict=True):
        if position < 0:
            raise refusal(f"the layer `{cut}` has no operation of its own in forward", "cut before another layer")
    return found


def refuse_empty_stages(
    trace: Trace, cuts: Sequence[Cut], positions: Sequence[int], again: Collection[fx.Node]
) -> None:
    """Raises PipeError (P704) for cuts out of order, and for stages with nothing but what all make ``again``."""
    computing = [p for p, node in enumerate(trace.nodes) if computes(node) and node not in again]
    edges = [0, *positions, len(trace.nodes)]
    for number in range(len(edges) - 1):
        start, end = edges[number], edges[number + 1]
        if start > end:
            raise refusal(
                f"forward calls {_said(cuts[number])} before {_said(cuts[number - 1])}",
                "name the layers in the order in which forward calls them",
            )
        if not any(start <= p < end for p in computing):
            first = f"between {_said(cuts[number - 1])} and" if number else "before"
            last = _said(cuts[number]) if number < len(cuts) else "the end"
            raise refusal(
                f"there is nothing to compute {first} {last}: stage {number} would be empty",
                "leave one of the cuts out, or move it",
            )


def _said(cut: Cut) -> str:
    return f"the layer `{cut}`" if isinstance(cut, str) else f"mark {cut}"


def computes(node: fx.Node) -> bool:
    """Whether a node makes a tensor; sizes and marks do not."""
    return node.op == "call_function" and node.meta.get("val") is not None and not is_number(node)


def named(model: nn.Module, names: list[str]) -> list[Cut]:
    """Layers' names as cuts. Raises PipeError (P704) for names that are not there or come twice."""
    known = [name for name, _ in model.named_modules() if name]
    for name in names:
        if name not in known:
            near = _near(name, known)
            raise refusal(f"the model has no layer `{name}`", f"did you mean {near}?" if near else None)
        if names.count(name) > 1:
            raise refusal(f"the layer `{name}` is named twice", "every layer begins at most one stage")
    return list(names)


def _near(name: str, known: list[str]) -> str:
    return " or ".join(f"`{match}`" for match in get_close_matches(name, known, n=2, cutoff=0.5))


def stages_of_nodes(trace: Trace, positions: Sequence[int]) -> dict[fx.Node, int]:
    """The stage of every node; the parts of an operation's tuple stay with it."""
    stages: dict[fx.Node, int] = {}
    for position, node in enumerate(trace.nodes):
        stages[node] = bisect_right(positions, position)
        if node.op == "placeholder":
            stages[node] = 0
        elif is_item(node):
            stages[node] = stages[node.all_input_nodes[0]]
    return stages
