"""What a valid schedule is, by brute force: semantics.md, section 1, over sets and counts.

Nothing here is fast, and nothing of the checker is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from piper_dsl.ir.operations import Kind, Operation
from piper_dsl.ir.schedule import Schedule

Place = tuple[int, int]
"""A rank and a slot of it."""


def slots(schedule: Schedule) -> list[list[tuple[Operation, ...]]]:
    """Of every rank, its slots in order."""
    rows: list[list[tuple[Operation, ...]]] = []
    for rank in range(schedule.ranks):
        row: list[tuple[Operation, ...]] = []
        for operation, joined in zip(
            schedule.row(rank), schedule.joined[schedule.offsets[rank] : schedule.offsets[rank + 1]], strict=True
        ):
            if joined:
                row[-1] = (*row[-1], operation)
            else:
                row.append((operation,))
        rows.append(row)
    return rows


def violations(schedule: Schedule) -> set[str]:
    """The rules that a schedule breaks, in a word each; empty if it is valid."""
    places: dict[Operation, list[Place]] = {}
    for rank, row in enumerate(slots(schedule)):
        for number, slot in enumerate(row):
            for operation in slot:
                places.setdefault(operation, []).append((rank, number))
    return {*_counts(schedule, places), *_placing(schedule, places), *_order(schedule, places)}


def _counts(schedule: Schedule, places: dict[Operation, list[Place]]) -> Iterator[str]:
    count = Counter({operation: len(found) for operation, found in places.items()})
    evaluates = not any(operation.kind in (Kind.B, Kind.I, Kind.W) for operation in places)
    for s in range(schedule.stages):
        for i in range(schedule.microbatches):
            f, b, i_, w, r = (count[Operation(kind, s, i)] for kind in (Kind.F, Kind.B, Kind.I, Kind.W, Kind.R))
            if f != 1:
                yield "forward"
            if not evaluates and (b, i_, w) not in ((1, 0, 0), (0, 1, 1)):
                yield "backward"
            if r > 1:
                yield "recompute"
    stepped = [operation for operation in places if operation.kind is Kind.OPT]
    if stepped and {operation.stage for operation in stepped} != {*range(schedule.stages)}:
        yield "stepped"


def _placing(schedule: Schedule, places: dict[Operation, list[Place]]) -> Iterator[str]:
    for operation, found in places.items():
        if not 0 <= operation.stage < schedule.stages:
            yield "range"
        elif operation.microbatch is None:
            # Every copy of the parameters is stepped, each on its rank, once.
            if sorted(rank for rank, _ in found) != sorted({*map(int, schedule.placement.rank_of[operation.stage])}):
                yield "stepped"
        elif not 0 <= operation.microbatch < schedule.microbatches:
            yield "range"
        elif any(rank != schedule.placement.rank_of[operation.stage, operation.microbatch] for rank, _ in found):
            yield "placement"


def _needs(schedule: Schedule, operation: Operation) -> Iterator[Operation]:
    s, i = operation.stage, operation.microbatch
    if operation.kind is Kind.F:
        yield from (Operation(Kind.F, a, i) for a, b in schedule.graph.edges if b == s)
    if operation.kind in (Kind.R, Kind.B, Kind.I):
        yield Operation(Kind.F, s, i)
    if operation.kind in (Kind.B, Kind.I):
        yield Operation(Kind.R, s, i)
        yield from (Operation(kind, b, i) for a, b in schedule.graph.edges if a == s for kind in (Kind.B, Kind.I))
    if operation.kind is Kind.W:
        yield Operation(Kind.I, s, i)
    if operation.kind is Kind.OPT:
        summed = {s}.union(*(tie for tie in schedule.ties if s in tie))
        yield from (Operation(k, t, j) for t in summed for j in range(schedule.microbatches) for k in (Kind.B, Kind.W))


def _order(schedule: Schedule, places: dict[Operation, list[Place]]) -> Iterator[str]:
    """Depth-first over slots: what each waits for, its rank's previous slot included."""
    before: dict[Place, set[Place]] = {}
    for operation, found in places.items():
        for rank, number in found:
            waits = before.setdefault((rank, number), {(rank, number - 1)} if number else set())
            for needed in _needs(schedule, operation):
                waits.update(places.get(needed, ()))
    finished: set[Place] = set()
    for start in before:
        path: list[tuple[Place, Iterator[Place]]] = [(start, iter(before[start]))] if start not in finished else []
        open_ = {start}
        while path:
            place, rest = path[-1]
            following = next((p for p in rest if p not in finished), None)
            if following is None:
                finished.add(place)
                open_.discard(place)
                path.pop()
            elif following in open_:
                yield "order"
                return
            else:
                open_.add(following)
                path.append((following, iter(before[following])))
