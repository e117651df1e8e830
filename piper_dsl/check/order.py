"""Can the ranks run at all? Rank order and needs together must have no cycle.

A cycle hangs on every transport. Each rank is followed as far as its needs are met; where that ends
early, every stuck rank waits for an operation that stands behind the stuck head of some rank, and
following these waits leads round the cycle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..diagnostics import Diagnostic, Related
from ..ir.clock import Run, run_schedule, run_slots
from ..ir.costs import Costs
from ..ir.needs import Needs
from ..ir.operations import Kind
from ..ir.schedule import Schedule

__all__ = ["check_order"]

_SHOWN_BETWEEN = 4
_MAX_REPAIR_OPERATIONS = 20_000


@dataclass(frozen=True)
class _Wait:
    """The head of ``rank`` waits for ``needed``, which stands behind the head of ``on``."""

    rank: int
    head: int
    needing: int
    needed: int
    on: int


def check_order(schedule: Schedule) -> list[Diagnostic]:
    """Findings P301 (ranks wait in a circle), P302 and P303 (one rank, one slot against itself)."""
    slots, arrivals = schedule.slots, schedule.arrivals
    overlapping = len(slots) < len(schedule)
    if not len(schedule):
        return []
    findings = [] if arrivals.own_order and not overlapping else _own_order(schedule)
    run = run_schedule(schedule, _durations(schedule), np.zeros(len(schedule.slots.producer)))
    if len(run.order) < len(slots):
        findings += _cycles(schedule, run)
    return findings


def _durations(schedule: Schedule) -> np.ndarray:
    """Any would do; the default ones are those that a simulation is likely to ask for next."""
    in_range = np.all((schedule.stage >= 0) & (schedule.stage < schedule.stages))
    return Costs().durations(schedule, schedule.slots) if in_range else np.ones(len(schedule.slots))


def _own_order(schedule: Schedule) -> list[Diagnostic]:
    """Needs that the order of a rank, or of one slot, does not meet; one finding a pair of places."""
    needs = schedule.needs
    needing = np.repeat(np.arange(len(schedule)), np.diff(needs.offsets))
    same_rank = schedule.rank[needing] == schedule.rank[needs.sources]
    same_slot = schedule.slot[needing] == schedule.slot[needs.sources]
    findings: dict[tuple[int, int], Diagnostic] = {}
    for edge in np.flatnonzero(same_rank & (same_slot | (needs.sources > needing))).tolist():
        index, source = int(needing[edge]), int(needs.sources[edge])
        pair = (int(schedule.origin.site[index]), int(schedule.origin.site[source]))
        if pair not in findings:
            findings[pair] = _against_itself(schedule, index, source, bool(same_slot[edge]))
    return list(findings.values())


def _against_itself(schedule: Schedule, index: int, source: int, same_slot: bool) -> Diagnostic:
    one, other = schedule.operation(index), schedule.operation(source)
    related = Related("needed here", schedule.origin.span(source))
    span = schedule.origin.span(index)
    if same_slot:
        message = f"{one} overlaps with {other}, which it needs{schedule.where(index)}"
        return Diagnostic("P303", message, span, "run them one after the other", related=(related,))
    message = f"{one} runs before {other}, which it needs{schedule.where(index)}"
    return Diagnostic("P302", message, span, f"run {other} before {one}", related=(related,))


def _cycles(schedule: Schedule, run: Run) -> list[Diagnostic]:
    needs = schedule.needs
    waits = {rank: wait for rank in range(schedule.ranks) if (wait := _wait_of(schedule, needs, run, rank))}
    findings: list[Diagnostic] = []
    seen: set[int] = set()
    for start in waits:
        path: list[int] = []
        rank = start
        while rank not in path and rank not in seen:
            path.append(rank)
            rank = waits[rank].on
        if rank in path:
            cycle = [waits[r] for r in path[path.index(rank) :]]
            first = min(range(len(cycle)), key=lambda k: cycle[k].rank)
            findings.append(_report(schedule, needs, cycle[first:] + cycle[:first]))
        seen.update(path)
    return findings


def _wait_of(schedule: Schedule, needs: Needs, run: Run, rank: int) -> _Wait | None:
    """What the stuck head of a rank waits for; None if the rank ran to its end."""
    slots = schedule.slots
    head = int(slots.offsets[rank]) + run.heads[rank]
    if head == slots.offsets[rank + 1]:
        return None
    for index in range(int(slots.first[head]), int(slots.first[head + 1])):
        for source in needs.of(index).tolist():
            on = int(schedule.rank[source])
            if on != rank and schedule.slot[source] >= slots.offsets[on] + run.heads[on]:
                return _Wait(rank, int(slots.first[head]), index, source, on)
    raise AssertionError("a head that waits for nothing")


def _report(schedule: Schedule, needs: Needs, cycle: list[_Wait]) -> Diagnostic:
    ranks = [f"{wait.rank}" for wait in cycle]
    names = f"{', '.join(ranks[:-1])} and {ranks[-1]}"
    who = "wait for each other" if len(ranks) == 2 else "wait in a circle"
    labels = [f"rank {wait.rank} waits for {_awaited(schedule, wait)}" for wait in cycle]
    spans = [schedule.origin.span(wait.needing) for wait in cycle]
    notes = [f"cycle: {' → '.join(_route(schedule, cycle))}"]
    notes.append(f"stuck: {', '.join(f'rank {w.rank} at {schedule.operation(w.needing)}' for w in cycle)}")
    return Diagnostic(
        "P301",
        f"ranks {names} {who}",
        spans[0],
        _repair(schedule, needs, cycle),
        label=labels[0] + schedule.where(cycle[0].needing),
        related=tuple(
            Related(label + schedule.where(wait.needing), span)
            for label, span, wait in zip(labels[1:], spans[1:], cycle[1:], strict=True)
        ),
        notes=tuple(notes),
    )


def _awaited(schedule: Schedule, wait: _Wait) -> str:
    needed = schedule.operation(wait.needed)
    if needed.kind is Kind.F:
        return f"the activation of microbatch {needed.microbatch} from rank {wait.on}"
    if needed.kind in (Kind.B, Kind.I):
        return f"the gradient of microbatch {needed.microbatch} from rank {wait.on}"
    return f"{needed} on rank {wait.on}"


def _route(schedule: Schedule, cycle: list[_Wait]) -> list[str]:
    """The operations round the cycle: each waits for the next."""
    heads = {wait.rank: wait for wait in cycle}
    route = []
    for wait in cycle:
        route.append(str(schedule.operation(wait.needing)))
        between = list(range(wait.needed, heads[wait.on].head, -1))
        names = [str(schedule.operation(index)) for index in between]
        if len(names) > _SHOWN_BETWEEN:
            names = [names[0], "…"]
        route += names
    return [*route, route[0]]


def _runs(schedule: Schedule, rows: list[list[int]]) -> bool:
    """Whether all slots run in another order."""
    slots = schedule.slots
    run = run_slots(rows, schedule.arrivals, [1.0] * len(slots), np.zeros(len(slots.producer)))
    return len(run.order) == len(slots)


def _repair(schedule: Schedule, needs: Needs, cycle: list[_Wait]) -> str | None:
    """The first single move of an operation to before a stuck head after which everything runs."""
    slots = schedule.slots
    if len(schedule) > _MAX_REPAIR_OPERATIONS or len(slots) != len(schedule):
        return None
    heads = {wait.rank: wait.head for wait in cycle}
    moves = [(op, heads[w.on], w.on) for w in cycle for op in range(heads[w.on] + 1, w.needed + 1)]
    moves.sort(key=lambda move: (schedule.kind[move[0]] != schedule.kind[move[1]], move[0] - move[1]))
    for moved, head, rank in moves[:50]:
        rows = slots.rows()
        row = rows[rank]
        row.remove(moved)
        row.insert(row.index(head), moved)
        needed_before = np.any((needs.of(moved) >= head) & (needs.of(moved) < moved))
        if not needed_before and _runs(schedule, rows):
            return f"on rank {rank}, run {schedule.operation(moved)} before {schedule.operation(head)}"
    return None
