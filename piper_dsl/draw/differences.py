"""What differs between two timelines of the same stages and microbatches: other orders, other durations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..ir.operations import COMPUTE, Operation
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
class _Place:
    rank: int
    behind: Operation | None
    duration: float


def comparable(scene: Scene, reference: Scene) -> bool:
    """Whether a stage and a microbatch mean the same in both."""
    one, other = scene.schedule, reference.schedule
    return (one.stages, one.microbatches) == (other.stages, other.microbatches)


def find_differences(scene: Scene, reference: Scene) -> Differences:
    """What differs among the operations shown, nothing where the sizes differ. Linear in the operations."""
    if not comparable(scene, reference):
        return Differences()
    places = {reference.schedule.operation(index): place for index, place in _places(reference)}
    shown = set(scene.shown.tolist())
    moved, changed = [], []
    for index, place in _places(scene):
        was = places.get(scene.schedule.operation(index))
        if index not in shown:
            continue
        if was is None or (was.rank, was.behind) != (place.rank, place.behind):
            moved.append(index)
        elif abs(place.duration - was.duration) > _NOTABLE * was.duration:
            changed.append(index)
    return Differences(tuple(moved), tuple(changed))


def _places(scene: Scene) -> Iterator[tuple[int, _Place]]:
    """Where every operation on a microbatch runs, rank by rank in order."""
    timeline, schedule = scene.timeline, scene.schedule
    duration = (timeline.end - timeline.start).tolist()
    for rank in range(schedule.ranks):
        behind: Operation | None = None
        for index in range(int(schedule.offsets[rank]), int(schedule.offsets[rank + 1])):
            operation = schedule.operation(index)
            if operation.kind in COMPUTE:
                yield index, _Place(rank, behind, duration[index])
                behind = operation


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
