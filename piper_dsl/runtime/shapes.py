"""How large messages get: a dry run of the stages on meta tensors, which hold shapes and no data."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ..ir.graph import StageGraph
from .dry_run import on_meta
from .spec import Batch, RankSpec
from .stage import as_tuple

__all__ = ["batch_bytes", "largest_message"]

Tensors = tuple[torch.Tensor, ...]


def batch_bytes(batches: Sequence[Batch]) -> int:
    """The bytes of one step's data, over all ranks."""
    return sum(x.nbytes for b in batches for part in (b.inputs, b.targets) for xs in part.values() for x in xs)


def largest_message(specs: Sequence[RankSpec], batches: Sequence[Batch]) -> int | None:
    """The bytes of the largest message between stages; None where a stage cannot run on meta tensors.

    That only leaves buffers to be sized as they are used: a stage that is at fault says so when it runs.
    """
    graph = specs[0].graph
    modules = {stage: module for spec in specs for stage, module in spec.modules.items()}
    inputs = {stage: xs for batch in batches for (stage, i), xs in batch.inputs.items() if i == 0}
    try:
        # What the stages draw is not the caller's to notice.
        with torch.random.fork_rng():
            return _walk(graph, modules, inputs)
    except Exception:
        return None


def _walk(graph: StageGraph, modules: dict[int, nn.Module], inputs: dict[int, Tensors]) -> int:
    outputs: dict[int, Tensors] = {}
    largest = 0
    for stage in graph.topological:
        before = graph.predecessors[stage]
        given = tuple(x for s in before for x in outputs[s]) if before else tuple(x.to("meta") for x in inputs[stage])
        outputs[stage] = as_tuple(on_meta(modules[stage], given))
        if graph.successors[stage]:
            largest = max(largest, sum(x.nbytes for x in outputs[stage]))
    return largest
