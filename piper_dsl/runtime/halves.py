"""A backward in two halves: the gradients of a stage's inputs, and later those of its parameters.

Two ways to divide it. :class:`Apart` does no work twice, :class:`Again` goes through the graph once for each half.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

import torch
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

__all__ = ["Again", "Apart", "Halves"]

Tensors = tuple[torch.Tensor, ...]
Found = tuple[torch.Tensor | None, ...]
Result = TypeVar("Result")
Run = Callable[[Sequence[GradientEdge], Sequence[torch.Tensor]], Result]
"""A backward from some edges, with their gradients."""


class Halves(Protocol):
    """Made from the outputs of a stage (``roots``), their gradients (``seeds``) and the inputs that need one."""

    def __init__(self, roots: Tensors, seeds: Tensors, leaves: Tensors) -> None: ...

    def inputs(self) -> Found:
        """The first half: the gradient of every leaf, None where it has no part in the outputs. Once."""

    def weights(self, run: Run[Result]) -> Result:
        """The second half: ``run`` is called with what is left to go through for the gradients of parameters. Once."""


class Again:
    """Goes through the whole graph for either half: what the second computes for the inputs is thrown away."""

    def __init__(self, roots: Tensors, seeds: Tensors, leaves: Tensors) -> None:
        self._roots, self._seeds, self._leaves = roots, seeds, leaves

    def inputs(self) -> Found:
        return _gradients(self._roots, self._seeds, self._leaves)

    def weights(self, run: Run[Result]) -> Result:
        return run([get_gradient_edge(x) for x in self._roots], self._seeds)


class Apart:
    """Computes every gradient of an intermediate value once, in the first half.

    The nodes of autograd's graph that lead to an input are its trunk; what hangs on the trunk and leads to parameters
    only are its branches. The first half runs the trunk, and keeps the gradients that arrive where a branch goes
    off (a fork). The second half runs every fork once more, for its branches alone, and then the branches::

        output ── tanh ── addmm ── tanh ── addmm ── input        trunk, of which addmm are forks
                            └─ t ─ W2        └─ t ─ W1           branches

    By linearity the sum over all forks is the gradient of every parameter, however often one is used.
    """

    def __init__(self, roots: Tensors, seeds: Tensors, leaves: Tensors) -> None:
        self._roots, self._seeds, self._leaves = roots, seeds, leaves
        self._forks: list[_Fork] = []
        self._direct: list[tuple[GradientEdge, torch.Tensor]] = []

    def inputs(self) -> Found:
        if not self._leaves:
            self._direct = list(zip(map(get_gradient_edge, self._roots), self._seeds, strict=True))
            return ()
        starts = [get_gradient_edge(x) for x in self._roots]
        graph = _Graph(starts, [get_gradient_edge(x).node for x in self._leaves])
        self._forks = [_Fork(node, branches) for node, branches in graph.forks()]
        pairs = zip(starts, self._seeds, strict=True)
        self._direct = [(start, seed) for start, seed in pairs if start.node not in graph.trunk]
        return _gradients(self._roots, self._seeds, self._leaves)

    def weights(self, run: Run[Result]) -> Result:
        found = list(self._direct)
        forks = [fork for fork in self._forks if fork.arrived is not None]
        try:
            _run_towards(
                {edge for fork in forks if fork.callable for edge in fork.branches.values()},
                lambda: found.extend(pair for fork in forks if fork.callable for pair in fork.run()),
            )
            found.extend(pair for fork in forks if not fork.callable for pair in fork.starts())
            return run([edge for edge, _ in found], [gradient for _, gradient in found])
        finally:
            for fork in self._forks:
                fork.release()


@dataclass(eq=False)
class _Arrival:
    """A hook on a fork: keeps what arrives at first. Later it stands for everything that arrives, or for nothing."""

    repeats: bool
    gradients: Found | None = None

    def __call__(self, gradients: Found) -> Found | None:
        if self.gradients is None:
            self.gradients = gradients
            return None
        return self.gradients if self.repeats else (None,) * len(gradients)


class _Fork:
    """A node of the trunk with branches: ``branches`` are their edges, by the number of the node's own."""

    def __init__(self, node: Node, branches: Mapping[int, GradientEdge]) -> None:
        self.node, self.branches = node, branches
        # Python's functions cannot be called for some of their edges: autograd runs them, and what it then takes
        # further along the trunk ends at the next fork.
        self.callable = callable(node)
        # The hook must not hold its node: autograd's graph is not seen by Python's collector.
        self._arrival = _Arrival(repeats=not self.callable)
        # Registered behind all hooks of the model, so it sees what the node gets.
        self._handle = node.register_prehook(cast("Callable[[Tensors], None]", self._arrival))

    @property
    def arrived(self) -> Found | None:
        return self._arrival.gradients

    def run(self) -> Iterable[tuple[GradientEdge, torch.Tensor]]:
        """Runs the node: the gradients that go into its branches. Only inside of :func:`_run_towards`."""
        found = cast("Callable[..., Found | torch.Tensor | None]", self.node)(*(self.arrived or ()))
        results = found if isinstance(found, tuple) else (found,)
        for number, edge in self.branches.items():
            gradient = results[number]
            if gradient is not None:
                yield edge, _fitted(gradient, edge)

    def release(self) -> None:
        """Takes the hook off the node."""
        self._handle.remove()

    def starts(self) -> Iterable[tuple[GradientEdge, torch.Tensor]]:
        """The node itself as where a backward starts."""
        for number, gradient in enumerate(self.arrived or ()):
            if gradient is not None:
                yield GradientEdge(self.node, number), gradient


class _Graph:
    """Autograd's graph behind some edges; the trunk leads to one of ``leaves``."""

    def __init__(self, starts: Iterable[GradientEdge], leaves: Iterable[Node]) -> None:
        self._edges: dict[Node, tuple[tuple[Node | None, int], ...]] = {}
        self._order = self._postorder([start.node for start in starts])
        self.trunk = set(leaves)
        self._branching: set[Node] = set()
        for node in self._order:
            children = [child for child, _ in self._edges[node]]
            if node not in self.trunk and not self.trunk.isdisjoint(children):
                self.trunk.add(node)
            if node not in self.trunk and (hasattr(node, "variable") or not self._branching.isdisjoint(children)):
                self._branching.add(node)

    def _postorder(self, starts: list[Node]) -> list[Node]:
        """Every node behind all that it leads to."""
        order: dict[Node, None] = {}
        stack = starts
        while stack:
            node = stack[-1]
            if node in self._edges:
                order.setdefault(stack.pop())
                continue
            self._edges[node] = edges = node.next_functions
            stack.extend(child for child, _ in edges if child is not None and child not in self._edges)
        return list(order)

    def forks(self) -> Iterable[tuple[Node, Mapping[int, GradientEdge]]]:
        """The nodes of the trunk with branches that lead to a parameter, and those."""
        for node in self._order:
            if node in self.trunk:
                edges = enumerate(self._edges[node])
                branches = {i: GradientEdge(child, k) for i, (child, k) in edges if child in self._branching}
                if branches:
                    yield node, branches


def _gradients(roots: Tensors, seeds: Tensors, leaves: Tensors) -> Found:
    if not roots or not leaves:
        return (None,) * len(leaves)
    return torch.autograd.grad(roots, leaves, seeds, retain_graph=True, allow_unused=True)


def _run_towards(edges: Collection[GradientEdge], work: Callable[[], None]) -> None:
    """Does ``work`` inside of a backward whose aims are ``edges``: nodes called in it compute for these alone.

    That is how autograd tells a node which gradients it need not compute, and there is no other way to tell it.
    """
    if not edges:
        return
    with torch.enable_grad():
        start = torch.zeros((), requires_grad=True)
        end = start.clone()
    assert end.grad_fn is not None
    end.grad_fn.register_prehook(lambda _: work())
    torch.autograd.grad(end, [get_gradient_edge(start), *edges], allow_unused=True)


def _fitted(gradient: torch.Tensor, edge: GradientEdge) -> torch.Tensor:
    """As autograd hands a gradient on: summed over what was broadcast, in the data type of the value."""
    value = edge.node._input_metadata[edge.output_nr]
    shape, dtype = torch.Size(value.shape), value.dtype
    if gradient.shape != shape:
        gradient = gradient.sum_to_size(shape)
    if gradient.is_complex() and not dtype.is_complex:
        gradient = torch.real(gradient)
    return gradient if gradient.dtype == dtype else gradient.to(dtype)
