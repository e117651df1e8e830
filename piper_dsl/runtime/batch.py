"""Cutting a batch into microbatches, for the ranks that need them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ..diagnostics import Diagnostic, PipeError
from ..ir.graph import StageGraph
from ..ir.placement import Placement
from .layout import is_dense, kind_of
from .spec import Batch

__all__ = ["Data", "parts", "rank_part", "require_fit", "signature", "split_batch"]

Tensors = tuple[torch.Tensor, ...]
Data = torch.Tensor | Sequence[torch.Tensor]
_Given = Mapping[str, Mapping[int, Tensors]]
"""A batch by name (inputs, targets) and stage."""
_Part = dict[str, dict[tuple[int, int], Tensors]]
"""What a rank has of it, by name, stage and microbatch."""


def split_batch(
    step: int,
    inputs: Data | Mapping[int, Data],
    targets: Data | Mapping[int, Data] | None,
    microbatches: int,
    graph: StageGraph,
    placement: Placement,
    training: bool = True,
    updates: bool = True,
    replicas: int = 1,
) -> list[Batch]:
    """The data of one step for every rank: equal parts of every tensor along its first dimension, copied, without the
    graph that autograd has of what they were computed from.

    ``inputs`` go to the stages without a predecessor, ``targets`` to those without a successor; where
    there are several, a mapping says which stage gets what. ``microbatches`` are those of all ``replicas``.

    Raises :class:`PipeError` (P703) for anything but dense tensors of one length, where that cannot be cut into
    ``microbatches`` equal parts, and where a stage gets nothing or should get nothing.
    """
    given = require_fit(inputs, targets, microbatches, graph, replicas)
    ranks: list[_Part] = [{name: {} for name in given} for _ in range(placement.ranks)]
    for name, (stage, i), part in _cut(given, microbatches):
        ranks[placement(stage, i)][name][stage, i] = _copies(part)
    return [Batch(step, own["inputs"], own["targets"], training, updates) for own in ranks]


def rank_part(given: _Given, rank: int, microbatches: int, placement: Placement) -> _Part:
    """What a rank has of a batch that fits: copies."""
    own: _Part = {name: {} for name in given}
    for name, (stage, i), part in _cut(given, microbatches):
        if placement(stage, i) == rank:
            own[name][stage, i] = _copies(part)
    return own


def _copies(part: Tensors) -> Tensors:
    return tuple(x.detach().clone() for x in part)


def _cut(given: _Given, microbatches: int) -> Iterator[tuple[str, tuple[int, int], Tensors]]:
    """Name, (stage, microbatch) and tensors of every part of a batch."""
    for name, found in given.items():
        for stage, tensors in found.items():
            for i, part in enumerate(zip(*(x.chunk(microbatches) for x in tensors), strict=True)):
                yield name, (stage, i), part


def require_fit(
    inputs: Data | Mapping[int, Data],
    targets: Data | Mapping[int, Data] | None,
    microbatches: int,
    graph: StageGraph,
    replicas: int = 1,
) -> dict[str, dict[int, Tensors]]:
    """The ``inputs`` and ``targets`` of a batch by stage. Raises what :func:`split_batch` raises."""
    first = [stage for stage in range(graph.stages) if not graph.predecessors[stage]]
    last = [stage for stage in range(graph.stages) if not graph.successors[stage]]
    given = {"inputs": _by_stage("inputs", inputs, first)}
    given["targets"] = {} if targets is None else _by_stage("targets", targets, last)
    _check_lengths(given, microbatches, replicas)
    return given


def signature(batches: Sequence[Batch]) -> tuple[Any, ...]:
    """What the shapes of all messages of a step depend on: shapes and dtypes of its data, over all ranks."""
    if batches[0].drawn is not None:
        return batches[0].drawn.signature
    # All microbatches of a stage are cut alike, so one of them speaks for all.
    found = {("in", stage): tensors for batch in batches for (stage, _), tensors in batch.inputs.items()}
    found |= {("out", stage): tensors for batch in batches for (stage, _), tensors in batch.targets.items()}
    return tuple(sorted((*key, *((tuple(x.shape), str(x.dtype)) for x in xs)) for key, xs in found.items()))


def parts(batch: Any) -> Sequence[Any]:
    """Inputs and, where there are some, targets of a batch. Raises :class:`PipeError` (P703) for anything else."""
    if not isinstance(batch, tuple | list) or len(batch) not in (1, 2):
        found = f"{len(batch)} parts" if isinstance(batch, tuple | list) else f"a {type(batch).__name__}"
        raise _fail(f"a batch is (inputs, targets), or (inputs,) where there are no targets, not {found}")
    return batch


def _fail(message: str, help: str | None = None) -> PipeError:
    return PipeError(Diagnostic("P703", message, None, help))


def _by_stage(name: str, data: Data | Mapping[int, Data], stages: list[int]) -> dict[int, Tensors]:
    if not isinstance(data, Mapping):
        if len(stages) > 1:
            message = f"stages {', '.join(map(str, stages))} all take {name}; one value cannot serve them"
            raise _fail(message, f"pass {name} as a dict from stage to tensors")
        data = {stages[0]: data}
    for stage in stages:
        if stage not in data:
            raise _fail(f"there are no {name} for stage {stage}")
    for stage in data:
        if stage not in stages:
            raise _fail(f"stage {stage} takes no {name}; those that do: {', '.join(map(str, stages))}")
    return {stage: _tensors(name, data[stage]) for stage in stages}


def _tensors(name: str, data: Data) -> Tensors:
    parts = tuple(data) if isinstance(data, tuple | list) else (data,)
    for part in parts:
        if not isinstance(part, torch.Tensor):
            raise _fail(f"{name} are tensors, or a tuple of them, not a {type(part).__name__}", "use torch.as_tensor")
        if not is_dense(part) or part.is_meta:
            kind = "on meta, without values" if part.is_meta else kind_of(part)
            raise _fail(f"{name} are dense tensors, which can be cut along their first dimension; this one is {kind}")
        if part.dim() == 0:
            raise _fail(f"{name} need a first dimension, the batch; this tensor has none")
    if not parts:
        raise _fail(f"{name} are empty; pass at least one tensor")
    return parts


def _check_lengths(given: _Given, microbatches: int, replicas: int) -> None:
    lengths = [(len(x), name) for name, found in given.items() for tensors in found.values() for x in tensors]
    for size, name in lengths:
        if size % microbatches or not size:
            offers = [m for m in range(1, size + 1) if size % (m * replicas) == 0][-6:]
            help_ = f"choose a batch that is a multiple of {microbatches}"
            help_ += f", or microbatches (m) among {', '.join(map(str, offers))}" if offers else ""
            message = f"a batch of {size} {name} cannot be cut into {microbatches} equal microbatches"
            each = f", {microbatches // replicas} for each of {replicas} replicas" if replicas > 1 else ""
            raise _fail(message + each, help_)
    if len({size for size, _ in lengths}) > 1:
        said = " and ".join(f"{size} {name}" for size, name in dict.fromkeys(lengths))
        raise _fail(f"a batch has one length, but there are {said}")
