"""What is changed in place, and where no cut may go for it.

A stage sends values, not memory: what one stage changes in place, another does not see.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import fx

from .errors import refusal, written_at
from .trace import Trace

__all__ = ["Held", "held_together", "refuse_cuts"]


@dataclass(frozen=True, eq=False)
class Held:
    """The positions ``first`` to ``last`` must stay in one stage, since ``node`` changes ``root`` in place."""

    first: int
    last: int
    what: str
    root: fx.Node
    node: fx.Node

    def __contains__(self, cut: int) -> bool:
        return self.first < cut <= self.last


def held_together(trace: Trace) -> list[Held]:
    """All that must not be cut apart. Raises PipeError (P704) where forward changes its inputs in place."""
    position = {node: number for number, node in enumerate(trace.nodes)}
    roots: dict[fx.Node, fx.Node] = {}
    found = []
    for node in trace.nodes:
        for argument in _written(node):
            root = _root(roots, argument)
            if root.op == "placeholder":
                raise refusal(
                    f"forward changes its input `{root.target}` in place",
                    "work on a copy (`x = x.clone()`), or use the operation without the underscore",
                    written_at(node.stack_trace),
                )
            found.append(_held(trace, position, root, node))
        if source := _aliased(node):
            roots[node] = _root(roots, source)
    return found


def refuse_cuts(held: list[Held], cuts: list[int]) -> None:
    """Raises PipeError (P704) where a cut goes between a value and what changes it in place."""
    for one in held:
        if any(cut in one for cut in cuts):
            raise refusal(
                f"forward changes {one.what} in place, and other stages than the one that does would not see it",
                "use the operation without the underscore, or cut elsewhere",
                written_at(one.node.stack_trace),
            )


def _held(trace: Trace, position: dict[fx.Node, int], root: fx.Node, node: fx.Node) -> Held:
    if root.op != "get_attr":
        return Held(position[root], position[node], f"`{root.name}`", root, node)
    same = [n for n in trace.nodes if n.op == "get_attr" and n.target == root.target]
    users = [position[user] for n in same for user in n.users]
    return Held(min(users), max(users), f"the buffer `{root.target}`", root, node)


def _root(roots: dict[fx.Node, fx.Node], node: fx.Node) -> fx.Node:
    return roots.get(node, node)


def _written(node: fx.Node) -> Iterator[fx.Node]:
    """The arguments that a node changes in place."""
    if node.target is torch.ops.aten.batch_norm.default:
        # Its schema does not say that it updates the running statistics, while it trains.
        *_, mean, variance, training = node.args[:6]
        yield from (x for x in (mean, variance) if training and isinstance(x, fx.Node))
    yield from _arguments(node, written=True)


def _aliased(node: fx.Node) -> fx.Node | None:
    """The argument whose memory a node's result may share."""
    return next(_arguments(node, written=False), None) or next(_arguments(node, written=True), None)


def _arguments(node: fx.Node, written: bool) -> Iterator[fx.Node]:
    if not isinstance(node.target, torch._ops.OpOverload):
        return
    for number, argument in enumerate(node.target._schema.arguments):
        alias = argument.alias_info
        if alias is None or alias.is_write is not written:
            continue
        value = node.args[number] if number < len(node.args) else node.kwargs.get(argument.name)
        yield from (x for x in (value if isinstance(value, list | tuple) else [value]) if isinstance(x, fx.Node))
