"""Cutting a batch into microbatches, for the ranks that need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ..diagnostics import Diagnostic, PipeError
from ..ir.graph import StageGraph
from .rank import Batch

__all__ = ["split_batch"]

Tensors = tuple[torch.Tensor, ...]
Data = torch.Tensor | Sequence[torch.Tensor]


def split_batch(
    step: int,
    inputs: Data | Mapping[int, Data],
    targets: Data | Mapping[int, Data] | None,
    microbatches: int,
    graph: StageGraph,
    owners: Sequence[int],
    ranks: int,
) -> list[Batch]:
    """The data of one step for every rank: equal parts of every tensor along its first dimension.

    ``inputs`` go to the stages without a predecessor, ``targets`` to those without a successor; where
    there are several, a mapping says which stage gets what. Raises :class:`PipeError` (P703) where a
    tensor cannot be cut into ``microbatches`` equal parts or a stage gets nothing.
    """
    first = [stage for stage in range(graph.stages) if not graph.predecessors[stage]]
    last = [stage for stage in range(graph.stages) if not graph.successors[stage]]
    parts = {
        "inputs": _by_stage("inputs", inputs, first, microbatches),
        "targets": {} if targets is None else _by_stage("targets", targets, last, microbatches),
    }
    batches = []
    for rank in range(ranks):
        own = {
            name: {(stage, i): part for stage, list_ in found.items() if owners[stage] == rank for i, part in list_}
            for name, found in parts.items()
        }
        batches.append(Batch(step, own["inputs"], own["targets"]))
    return batches


def _by_stage(
    name: str, data: Data | Mapping[int, Data], stages: list[int], microbatches: int
) -> dict[int, list[tuple[int, Tensors]]]:
    if not isinstance(data, Mapping):
        if len(stages) > 1:
            message = f"stages {', '.join(map(str, stages))} all take {name}; one tensor cannot serve them"
            raise PipeError(Diagnostic("P703", message, None, f"pass {name} as a dict from stage to tensors"))
        data = {stages[0]: data}
    missing = [stage for stage in stages if stage not in data]
    if missing:
        raise PipeError(Diagnostic("P703", f"there are no {name} for stage {missing[0]}"))
    return {stage: list(enumerate(_cut(name, data[stage], microbatches))) for stage in stages}


def _cut(name: str, data: Data, microbatches: int) -> list[Tensors]:
    tensors = (data,) if isinstance(data, torch.Tensor) else tuple(data)
    sizes = {len(tensor) for tensor in tensors}
    for size in sizes:
        if size % microbatches or not size:
            offers = [d for d in range(1, size + 1) if size % d == 0][-6:]
            help_ = f"choose a batch that is a multiple of {microbatches}"
            help_ += f", or microbatches (m) among {', '.join(map(str, offers))}" if offers else ""
            message = f"a batch of {size} {name} cannot be cut into {microbatches} equal microbatches"
            raise PipeError(Diagnostic("P703", message, None, help_))
    return list(zip(*(tensor.chunk(microbatches) for tensor in tensors), strict=True))
