"""A schedule as `.pipe` text a person can read: runs folded into ranges and loops where they are regular."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..diagnostics import Source
from ..ir.graph import StageGraph
from ..ir.operations import Kind
from ..ir.placement import loop_ranks, vee_ranks
from ..ir.schedule import Schedule
from ..syntax.formatter import format_source

__all__ = ["to_pipe"]

_LONGEST_PERIOD = 12
"""Slots of a loop body, at most, when repetitions are looked for."""

_Slot = tuple[tuple[Kind, int, int], ...]
"""The (kind, stage, microbatch) of a slot's operations; microbatch -1 for none."""


@dataclass(frozen=True)
class _Piece:
    """A line of a body: slots, repeated ``times`` with every microbatch one up each time."""

    slots: tuple[_Slot, ...]
    times: int


def to_pipe(schedule: Schedule) -> str:
    """The text of a schedule: its sizes, placement and stage graph, and one body a rank.

    Expanding it gives the same operations in the same order. Costs, rules and parameters of the file it
    came from are not part of it.
    """
    name = schedule.name.replace('"', "'").replace("\n", " ")
    lines = [f'schedule "{name}"', "", f"ranks {schedule.ranks}", f"microbatches {schedule.microbatches}"]
    if schedule.stages != schedule.ranks:
        lines.append(f"stages {schedule.stages}")
    lines += [*_placement(schedule), *_graph(schedule)]
    for rank in range(schedule.ranks):
        lines += ["", f"rank {rank} {{", *_body(schedule, rank), "}"]
    return format_source(Source(name, "\n".join(lines) + "\n"))


def _placement(schedule: Schedule) -> list[str]:
    rank_of = schedule.placement.rank_of
    by_stage = rank_of[:, 0]
    if (rank_of == by_stage[:, None]).all():
        if np.array_equal(by_stage, loop_ranks(schedule.stages, schedule.ranks)):
            return []
        folds = schedule.stages % schedule.ranks == 0
        if folds and np.array_equal(by_stage, vee_ranks(schedule.stages, schedule.ranks)):
            return ["place vee"]
        return [f"place s on {_choice('s', by_stage.tolist())}"]
    rows = [_choice("i", row.tolist()) for row in rank_of]
    return [f"place s, i on {_choice('s', rows)}"]


def _choice(name: str, values: list[int] | list[str]) -> str:
    """An expression that gives ``values[k]`` where ``name`` is ``k``: a sum with one term a run of equal values."""
    starts = [k for k in range(len(values)) if k == 0 or values[k] != values[k - 1]]
    if len(starts) == 1:
        return str(values[0])
    runs = pairwise([*starts, len(values)])
    terms = [f"{values[a]} * ({a} <= {name} < {b})" for a, b in runs if values[a] not in (0, "0")]
    return f"({' + '.join(terms)})"


def _graph(schedule: Schedule) -> Iterator[str]:
    if schedule.graph != StageGraph.chain(schedule.stages):
        yield from (f"edge {source} -> {target}" for source, target in schedule.graph.edges)
    yield from (f"tie {', '.join(map(str, tie))}" for tie in schedule.ties)


def _body(schedule: Schedule, rank: int) -> Iterator[str]:
    single = len(schedule.placement.owned[rank]) == 1
    for piece in _folded(_slots(schedule, rank)):
        yield f"  {_line(piece, single)}"


def _slots(schedule: Schedule, rank: int) -> list[_Slot]:
    found: list[list[tuple[Kind, int, int]]] = []
    for index in range(*schedule.offsets[rank : rank + 2].tolist()):
        key = (Kind(int(schedule.kind[index])), int(schedule.stage[index]), int(schedule.microbatch[index]))
        if schedule.joined[index]:
            found[-1].append(key)
        else:
            found.append([key])
    return [tuple(slot) for slot in found]


def _folded(slots: list[_Slot]) -> Iterator[_Piece]:
    """Greedily, from the left: the repetition that covers most slots, else one slot as it stands."""
    position = 0
    while position < len(slots):
        best = _Piece((slots[position],), 1)
        for period in range(1, min(_LONGEST_PERIOD, (len(slots) - position) // 2) + 1):
            times = _repetitions(slots, position, period)
            if times > 1 and times * period > best.times * len(best.slots):
                best = _Piece(tuple(slots[position : position + period]), times)
        yield best
        position += best.times * len(best.slots)


def _repetitions(slots: list[_Slot], start: int, period: int) -> int:
    """How often the ``period`` slots from ``start`` follow each other, every microbatch one up each time."""
    position = start + period
    while position < len(slots) and slots[position] == _up(slots[position - period]):
        position += 1
    return (position - start) // period


def _up(slot: _Slot) -> _Slot | None:
    """The slot with every microbatch one up; None for operations without one, which do not repeat."""
    if any(microbatch < 0 for _, _, microbatch in slot):
        return None
    return tuple((kind, stage, microbatch + 1) for kind, stage, microbatch in slot)


def _line(piece: _Piece, single: bool) -> str:
    if piece.times == 1:
        return " ".join(" & ".join(_operation(*key, single=single) for key in slot) for slot in piece.slots)
    if len(piece.slots) == 1 and len(piece.slots[0]) == 1:
        kind, stage, first = piece.slots[0][0]
        return f"{kind.name}[{first}:{first + piece.times}]{'' if single else f'@{stage}'}"
    base = min(microbatch for slot in piece.slots for _, _, microbatch in slot)
    body = "  ".join(" & ".join(_indexed(*key, base=base, single=single) for key in slot) for slot in piece.slots)
    return f"for i in {base}:{base + piece.times} {{ {body} }}"


def _operation(kind: Kind, stage: int, microbatch: int, *, single: bool) -> str:
    if microbatch < 0:
        return f"{kind.name}@{stage}"
    return f"{kind.name}[{microbatch}]{'' if single else f'@{stage}'}"


def _indexed(kind: Kind, stage: int, microbatch: int, *, base: int, single: bool) -> str:
    ahead = microbatch - base
    return f"{kind.name}[{f'i + {ahead}' if ahead else 'i'}]{'' if single else f'@{stage}'}"
