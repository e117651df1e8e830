"""What differs between two timelines of the same stages and microbatches: other orders, other durations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..ir.operations import COMPUTE
from .scene import Scene

__all__ = ["Differences", "difference_facts", "find_differences"]

_NOTABLE = 0.1
"""A duration that differs by less than this share counts as the same."""


@dataclass(frozen=True)
class Differences:
    """Operations by their indices: ``moved`` run on another rank or behind another operation than in the
    reference, or are not there at all; ``changed`` take at least a tenth longer or shorter."""

    moved: tuple[int, ...] = ()
    changed: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Places:
    """Every operation on a microbatch as arrays, rank by rank in order: its place in the schedule, its key, its rank,
    the key of the one before it on its rank (-1 for none), and how long it takes."""

    index: np.ndarray
    key: np.ndarray
    rank: np.ndarray
    behind: np.ndarray
    duration: np.ndarray


def comparable(scene: Scene, reference: Scene) -> bool:
    """Whether a stage and a microbatch mean the same in both."""
    one, other = scene.schedule, reference.schedule
    return (one.stages, one.microbatches) == (other.stages, other.microbatches)


def find_differences(scene: Scene, reference: Scene) -> Differences:
    """What differs among the operations shown, nothing where the sizes differ. Linear but for sorting."""
    if not comparable(scene, reference):
        return Differences()
    own, other = _places(scene), _places(reference)
    order = np.argsort(other.key, kind="stable")
    if not len(order):
        return Differences(moved=tuple(np.intersect1d(own.index, scene.shown).tolist()))
    at = order[np.minimum(np.searchsorted(other.key[order], own.key), len(order) - 1)]
    same = (other.key[at] == own.key) & (other.rank[at] == own.rank) & (other.behind[at] == own.behind)
    longer = np.abs(own.duration - other.duration[at]) > _NOTABLE * other.duration[at]
    shown = np.isin(own.index, scene.shown)
    return Differences(tuple(own.index[shown & ~same].tolist()), tuple(own.index[shown & same & longer].tolist()))


def _places(scene: Scene) -> _Places:
    timeline, schedule = scene.timeline, scene.schedule
    index = np.flatnonzero(np.isin(schedule.kind, COMPUTE))
    stage, rank = schedule.stage[index].astype(np.int64), schedule.rank[index]
    key = (
        schedule.kind[index].astype(np.int64) * schedule.stages + stage
    ) * schedule.microbatches + schedule.microbatch[index]
    first = np.diff(rank, prepend=-1) != 0
    behind = np.where(first, -1, np.roll(key, 1))
    return _Places(index, key, rank, behind, (timeline.end - timeline.start)[index])


def difference_facts(scene: Scene, reference: Scene) -> list[str]:
    """The makespan against that of the reference, and how many operations are marked."""
    less, was = scene.timeline.makespan - reference.timeline.makespan, reference.timeline.makespan
    share = f" ({less / was:+.1%})" if was else ""
    said = [f"makespan {less:+.6g}{share} against the first" if less else "makespan the same as the first"]
    if not comparable(scene, reference):
        return [*said, "other stages or microbatches: single operations cannot be compared"]
    found = find_differences(scene, reference)
    said.append(f"{len(found.moved)} operations in another order")
    if found.changed:
        said.append(f"{len(found.changed)} take another time")
    return said
