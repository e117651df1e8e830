"""The data of a stage's microbatches as bytes, all in one: a step of many small ones is pickled many times faster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from .packed import bytes_of, can_pack, writable

__all__ = ["Stacked", "stacked", "unstacked"]

Tensors = tuple[torch.Tensor, ...]
Data = Mapping[tuple[int, int], Tensors]
"""Tensors by (stage, microbatch)."""


@dataclass(frozen=True, eq=False)
class Stacked:
    """Tensors of several microbatches: ``parts`` hold the bytes (uint8) of all first tensors, all second ones, …"""

    microbatches: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    parts: tuple[np.ndarray, ...]

    def rows(self) -> list[Tensors]:
        """By microbatch: tensors that share memory with no others."""
        count = len(self.microbatches)
        columns = [writable(part).reshape(count, len(part) // count) for part in self.parts]
        kinds = list(zip(self.dtypes, self.shapes, strict=True))
        # Each from an array of its own: views of one tensor would count each other's changes as theirs.
        return [
            tuple(
                torch.from_numpy(column[row]).view(dtype).view(shape)
                for column, (dtype, shape) in zip(columns, kinds, strict=True)
            )
            for row in range(count)
        ]


def stacked(data: Data) -> dict[int, Stacked | dict[int, Tensors]]:
    """The data by stage; as it is where its tensors are more than their values, or not all alike."""
    stages: dict[int, dict[int, Tensors]] = {}
    for (stage, microbatch), tensors in data.items():
        stages.setdefault(stage, {})[microbatch] = tensors
    return {stage: _stacked(own) or own for stage, own in stages.items()}


def _stacked(own: Mapping[int, Tensors]) -> Stacked | None:
    rows = list(own.values())
    if not all(map(can_pack, rows)):
        return None
    kinds = {tuple((tuple(x.shape), x.dtype) for x in row) for row in rows}
    if len(kinds) > 1 or () in kinds:
        return None
    shapes, dtypes = zip(*kinds.pop(), strict=True)
    return Stacked(tuple(own), shapes, dtypes, tuple(bytes_of(_one(column)) for column in zip(*rows, strict=True)))


def _one(column: tuple[torch.Tensor, ...]) -> torch.Tensor:
    with torch.no_grad():
        return torch.stack(column) if len(column) > 1 else column[0]


def unstacked(stages: Mapping[int, Stacked | Mapping[int, Tensors]]) -> dict[tuple[int, int], Tensors]:
    """What :func:`stacked` was made from."""
    found: dict[tuple[int, int], Tensors] = {}
    for stage, own in stages.items():
        rows = zip(own.microbatches, own.rows(), strict=True) if isinstance(own, Stacked) else own.items()
        found |= {(stage, microbatch): tensors for microbatch, tensors in rows}
    return found
