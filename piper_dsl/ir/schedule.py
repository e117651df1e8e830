"""The Schedule: for every rank, the operations it runs, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .graph import StageGraph
from .operations import PER_MICROBATCH, Kind, Operation
from .origin import Origin
from .placement import Placement

if TYPE_CHECKING:
    from ..diagnostics import Diagnostic
    from .clock import Arrivals, Run
    from .needs import Needs
    from .slots import Slots

__all__ = ["Schedule"]

_RUNS = 8
"""Runs that are remembered: enough for who checks, simulates and lowers; who tries many costs has no end of them."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """A finite list of operations per rank, as arrays.

    ``kind`` (int8), ``stage`` and ``microbatch`` (int32) and ``joined`` (bool) have one entry an
    operation; the operations of rank ``r`` are ``offsets[r]`` to ``offsets[r + 1]``, in the order
    they run. ``microbatch`` is -1 for kinds that concern a stage as a whole. ``joined`` marks an
    operation that starts together with the one before it (an overlapped slot).

    ``declared_costs[kind, stage]`` holds the durations that the file declares, NaN where it is
    silent; float64 of shape (len(Kind), stages). ``overlap_costs`` does so for overlapped slots.
    """

    name: str
    ranks: int
    stages: int
    microbatches: int
    placement: Placement
    graph: StageGraph
    ties: tuple[tuple[int, ...], ...]
    kind: np.ndarray
    stage: np.ndarray
    microbatch: np.ndarray
    joined: np.ndarray
    offsets: np.ndarray
    declared_costs: np.ndarray
    overlap_costs: Mapping[tuple[Kind, ...], np.ndarray]
    parameters: Mapping[str, int]
    origin: Origin

    def __len__(self) -> int:
        return len(self.kind)

    def operation(self, index: int) -> Operation:
        """The key of an operation by its index in the arrays."""
        kind = Kind(int(self.kind[index]))
        microbatch = int(self.microbatch[index]) if kind in PER_MICROBATCH else None
        return Operation(kind, int(self.stage[index]), microbatch)

    @cached_property
    def rank(self) -> np.ndarray:
        """The rank that every operation is written on; int32."""
        return np.repeat(np.arange(self.ranks, dtype=np.int32), np.diff(self.offsets))

    @cached_property
    def slot(self) -> np.ndarray:
        """The slot of every operation, counted over all ranks; int64."""
        return np.cumsum(~self.joined) - 1

    @cached_property
    def positions(self) -> dict[Kind, np.ndarray]:
        """Where each key stands (see :func:`piper_dsl.ir.needs.find_positions`)."""
        from .needs import find_positions

        return find_positions(self)

    @cached_property
    def needs(self) -> Needs:
        """What every operation needs."""
        from .needs import find_needs

        return find_needs(self)

    @cached_property
    def slots(self) -> Slots:
        """What every rank runs at a time, and what that needs."""
        from .slots import find_slots

        return find_slots(self, self.needs)

    @cached_property
    def arrivals(self) -> Arrivals:
        """What every slot needs from other ranks."""
        from .clock import find_arrivals

        return find_arrivals(self, self.slots)

    @cached_property
    def runs(self) -> deque[tuple[np.ndarray, np.ndarray, Run]]:
        """The last that :func:`piper_dsl.ir.clock.run_schedule` found, with the durations and delays of each run."""
        return deque(maxlen=_RUNS)

    @cached_property
    def findings(self) -> dict[str, tuple[Diagnostic, ...]]:
        """What :func:`piper_dsl.check.check` found so far, by transport: who lowers or draws checks once more."""
        return {}

    def row(self, rank: int) -> tuple[Operation, ...]:
        """What a rank runs, in order."""
        return tuple(self.operation(i) for i in range(int(self.offsets[rank]), int(self.offsets[rank + 1])))

    def where(self, index: int) -> str:
        """The variables around an operation, as a reader would say it: `` for r = 2, i = 5``; may be empty."""
        bindings = ", ".join(f"{name} = {value}" for name, value in self.origin.bindings(index).items())
        return f" for {bindings}" if bindings else ""
