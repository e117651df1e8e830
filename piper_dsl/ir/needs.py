"""What every operation needs: the rules of the language's semantics, as arrays.

F(s, i) needs F(q, i) of every predecessor stage q; B or I needs its own F (and R) and the B or I of
every successor; W needs I; REDUCE_GRAD needs every B or W of its stage; OPT needs every B or W of
its stage, of the stages tied to it and of all copies, and every REDUCE_GRAD of its stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .operations import PER_MICROBATCH, Kind
from .schedule import Schedule

__all__ = ["Needs", "find_needs", "find_positions"]


@dataclass(frozen=True, eq=False)
class Needs:
    """Operation ``i`` needs the operations ``sources[offsets[i] : offsets[i + 1]]``; int64 arrays."""

    offsets: np.ndarray
    sources: np.ndarray

    def of(self, index: int) -> np.ndarray:
        return self.sources[self.offsets[index] : self.offsets[index + 1]]


def find_positions(schedule: Schedule) -> dict[Kind, np.ndarray]:
    """Where each key stands: per kind with a microbatch, int64 of shape (stages, microbatches), to be read only.

    -1 where there is no such operation; the first of repeated ones; ids out of range are left out.
    """
    shape = (schedule.stages, schedule.microbatches)
    nowhere = np.broadcast_to(np.int64(-1), shape)
    in_range = (
        (schedule.stage >= 0)
        & (schedule.stage < schedule.stages)
        & (schedule.microbatch >= 0)
        & (schedule.microbatch < schedule.microbatches)
    )
    found = {}
    for kind in PER_MICROBATCH:
        index = np.flatnonzero((schedule.kind == kind) & in_range)[::-1]
        found[kind] = np.full(shape, -1, dtype=np.int64) if len(index) else nowhere
        if len(index):
            found[kind][schedule.stage[index], schedule.microbatch[index]] = index
    return found


def find_needs(schedule: Schedule) -> Needs:
    """The needs of every operation; a need that is nowhere in the schedule is left out. Linear time."""
    at = schedule.positions
    families, bundles = list(_families(schedule, at)), list(_bundles(schedule, at))
    count = np.zeros(len(schedule), dtype=np.int64)
    for needing, _ in families:
        count[needing] += 1
    for index, needed in bundles:
        count[index] += len(needed)
    offsets = np.concatenate([[0], np.cumsum(count)])
    filled = offsets[:-1].copy()
    sources = np.empty(offsets[-1], dtype=np.int64)
    for needing, needed in families:
        sources[filled[needing]] = needed
        filled[needing] += 1
    for index, needed in bundles:
        sources[filled[index] : filled[index] + len(needed)] = needed
        filled[index] += len(needed)
    return Needs(offsets, sources)


def _families(schedule: Schedule, at: dict[Kind, np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs (needing, needed) of index arrays; no operation appears twice in one `needing`."""
    forward, recompute, weight = at[Kind.F], at[Kind.R], at[Kind.W]
    gradient = np.where(at[Kind.I] >= 0, at[Kind.I], at[Kind.B])
    yield _pairs(gradient, forward)
    yield _pairs(recompute, forward)
    yield _pairs(gradient, recompute)
    yield _pairs(weight, at[Kind.I])
    for sources, targets in _disjoint(schedule.graph.edges):
        yield _pairs(forward[targets], forward[sources])
    for sources, targets in _disjoint([(target, source) for source, target in schedule.graph.edges]):
        yield _pairs(gradient[targets], gradient[sources])


def _disjoint(edges: list[tuple[int, int]] | tuple[tuple[int, int], ...]) -> Iterator[tuple[list[int], list[int]]]:
    """The edges in groups within which no target repeats, as (sources, targets)."""
    rest = list(edges)
    while rest:
        group: dict[int, int] = {}
        later = []
        for source, target in rest:
            if target in group:
                later.append((source, target))
            else:
                group[target] = source
        yield list(group.values()), list(group)
        rest = later


def _bundles(schedule: Schedule, at: dict[Kind, np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
    """The needs of every OPT and REDUCE_GRAD: pairs (needing, all it needs)."""
    gradients = np.where(at[Kind.W] >= 0, at[Kind.W], at[Kind.B])
    reductions = np.flatnonzero(schedule.kind == Kind.REDUCE_GRAD)
    for index in np.flatnonzero((schedule.kind == Kind.OPT) | (schedule.kind == Kind.REDUCE_GRAD)):
        stage = int(schedule.stage[index])
        if not 0 <= stage < schedule.stages:
            continue
        stages = [stage]
        if schedule.kind[index] == Kind.OPT:
            stages = sorted({stage}.union(*(tie for tie in schedule.ties if stage in tie)))
            yield int(index), reductions[np.isin(schedule.stage[reductions], stages)]
        yield int(index), gradients[stages][gradients[stages] >= 0]


def _pairs(needing: np.ndarray, needed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    both = (needing >= 0) & (needed >= 0)
    return needing[both], needed[both]
