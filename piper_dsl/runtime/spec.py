"""What is sent to a rank: once, all it needs to run; with every step, its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from ..ir.graph import StageGraph
from ..ir.placement import Placement
from .optimizer import OptimizerFactory, SchedulerFactory
from .shared import SharedGroup
from .stage import LossFunction

__all__ = ["Batch", "RankSpec"]

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, eq=False)
class RankSpec:
    """All that a rank needs to know to run; sent to where it runs once.

    ``modules`` maps the rank's stages to their modules; ``recomputed`` are the (stage, microbatch) that
    have an R. ``scale`` multiplies every loss. Gradients are clipped to ``max_norm``, the norm over all ranks.
    ``seed`` is that of the stages' random numbers; ``shared`` are parameters that other ranks hold too;
    ``device`` is where the rank computes.
    """

    rank: int
    graph: StageGraph
    placement: Placement
    microbatches: int
    modules: Mapping[int, nn.Module]
    trained: bool
    recomputed: frozenset[tuple[int, int]]
    loss_fn: LossFunction | None
    optimizer: OptimizerFactory | None
    scheduler: SchedulerFactory | None = None
    max_norm: float | None = None
    scale: float = 1.0
    seed: int = 0
    shared: Sequence[SharedGroup] = ()
    device: str = "cpu"


@dataclass(frozen=True, eq=False)
class Batch:
    """One step's data for one rank, by (stage, microbatch): inputs of first, targets of last stages.

    A step that is not ``training`` runs forwards only, and leaves no trace; one that does not ``update`` only
    adds to the gradients.
    """

    step: int
    inputs: Mapping[tuple[int, int], Tensors] = field(default_factory=dict)
    targets: Mapping[tuple[int, int], Tensors] = field(default_factory=dict)
    training: bool = True
    updates: bool = True
