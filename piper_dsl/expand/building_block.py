"""Building blocks: the operations of one microbatch in slots, repeated, and moved ahead where memory allows.

A block gives every operation of one microbatch its slot, stage by stage, and a period after which the
next microbatch follows (Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362). W
has no slot of its own: it takes the first free ones. What is repeated is stable, but slow to begin and to
end; there operations are moved ahead, in the order of their slots, each to the earliest free slot that
its needs allow and that does not raise the peak of memory of the repetition:

1. with W in its free slots, at the beginning and at the end;
2. without W, so that it makes room, at the end once more.

At the beginning means before the first microbatch has come back to the first stage, at the end after the
last one has entered it. F, I and W take one slot, B takes two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from ..ir.graph import StageGraph
from ..ir.operations import Kind

__all__ = ["BlockShape", "arrange"]

_Key = tuple[Kind, int, int]
"""Kind, stage and microbatch; a W that may still be of any stage has stage -1 and its number."""
_Row = dict[_Key, int]
"""The slot of every operation of a rank."""


@dataclass(frozen=True)
class BlockShape:
    """What a block is arranged from.

    ``slots[kind][s]`` is the slot of an operation of stage ``s`` for microbatch 0, for F and B or for F
    and I; with I, every I is followed by a W. ``owners[s]`` is the rank of stage ``s``.
    """

    slots: Mapping[Kind, tuple[int, ...]]
    period: int
    microbatches: int
    owners: tuple[int, ...]
    ranks: int
    graph: StageGraph

    @property
    def backward(self) -> Kind:
        return Kind.I if Kind.I in self.slots else Kind.B


def arrange(shape: BlockShape) -> list[list[_Key]]:
    """The operations of every rank, in order."""
    rows: list[_Row] = [{} for _ in range(shape.ranks)]
    for kind, slots in shape.slots.items():
        for stage, first in enumerate(slots):
            for i in range(shape.microbatches):
                rows[shape.owners[stage]][kind, stage, i] = first + i * shape.period
    ahead = _Mover(shape, [_with_weights(row) for row in rows], at_begin=True).rows
    ahead = _Mover(shape, [_without_weights(row) for row in ahead], at_begin=False).rows
    return [_in_order(_without_weights(row)) for row in ahead]


# --- weights in free slots ---------------------------------------------------------------------


def _without_weights(row: _Row) -> _Row:
    return {key: slot for key, slot in row.items() if key[0] is not Kind.W}


def _with_weights(row: _Row) -> _Row:
    """The row with a W in the first free slots after every I, of whichever stage."""
    found, owed, number = dict(row), 0, 0
    for slot, key in _slots(row):
        if key is None and owed:
            found[Kind.W, -1, number] = slot
            owed, number = owed - 1, number + 1
        owed += key is not None and key[0] is Kind.I
        if key is None and not owed and slot > max(row.values(), default=-1):
            break
    return found


def _slots(row: _Row) -> Iterator[tuple[int, _Key | None]]:
    """Every slot from 0 on, with what starts in it; the second slot of a B is left out."""
    at = {slot: key for key, slot in row.items()}
    busy_until = 0
    for slot in count():
        key = at.get(slot)
        if key is not None:
            busy_until = slot + _length(key)
        if key is not None or slot >= busy_until:
            yield slot, key


def _in_order(row: _Row) -> list[_Key]:
    """The row's operations, each W in a free slot: of what is owed, that of the latest stage first."""
    order: list[_Key] = []
    owed: dict[int, list[int]] = {}
    last = max(row.values(), default=-1)
    for slot, key in _slots(row):
        if key is not None:
            order.append(key)
            if key[0] is Kind.I:
                owed.setdefault(key[1], []).append(key[2])
        elif owed:
            stage = max(owed)
            order.append((Kind.W, stage, owed[stage].pop(0)))
            owed = {s: waiting for s, waiting in owed.items() if waiting}
        elif slot > last:
            break
    return order


def _length(key: _Key) -> int:
    return 2 if key[0] is Kind.B else 1


def _peak(row: _Row) -> int:
    """The most activations held at a time; without W in the row, one is freed in every free slot that is owed one."""
    split = any(key[0] is Kind.I for key in row)
    weights = any(key[0] is Kind.W for key in row)
    live = peak = owed = 0
    last = max(row.values(), default=-1)
    for slot, key in _slots(row):
        if slot > last:
            break
        if key is None:
            if split and not weights and owed:
                live, owed = live - 1, owed - 1
        elif key[0] is Kind.F:
            live += 1
        elif key[0] is Kind.I:
            owed += 1
        peak = max(peak, live)
        if key is not None and key[0] in (Kind.B, Kind.W):
            live -= 1
    return peak


# --- moving ahead ------------------------------------------------------------------------------


class _Mover:
    """One pass over all operations in the order of their slots; ``rows`` is what it leaves, without gaps."""

    def __init__(self, shape: BlockShape, rows: list[_Row], *, at_begin: bool) -> None:
        self._shape = shape
        self._rows = rows
        self._at_begin = at_begin
        self._peak = max(map(_peak, rows))
        self._taken: list[set[int]] = [set() for _ in rows]
        self._pass()
        if not at_begin:
            self._rows = [_with_weights(_without_weights(row)) for row in self._rows]
        self.rows = self._closed()

    def _ordered(self) -> list[tuple[int, int, _Key]]:
        return sorted((slot, rank, key) for rank, row in enumerate(self._rows) for key, slot in row.items())

    def _pass(self) -> None:
        first = min(s for s in range(self._shape.graph.stages) if not self._shape.graph.predecessors[s])
        returned, entered = (self._shape.backward, first, 0), (Kind.F, first, self._shape.microbatches - 1)
        moving, all_entered = self._at_begin, False
        for slot, rank, key in self._ordered():
            moving = moving and (key != returned or all_entered)
            if moving:
                self._move(rank, key, slot)
            if key == entered:
                moving = all_entered = True
            self._taken[rank].update(range(self._rows[rank][key], self._rows[rank][key] + _length(key)))

    def _move(self, rank: int, key: _Key, now: int) -> None:
        row, length = self._rows[rank], _length(key)
        for slot in range(self._earliest(rank, key), now):
            if self._taken[rank].isdisjoint(range(slot, slot + length)):
                row[key] = slot
                if _peak(row) <= self._peak:
                    return
        row[key] = now

    def _earliest(self, rank: int, key: _Key) -> int:
        """The first slot after everything that an operation needs, and after the microbatch before it."""
        kind, stage, microbatch = key
        row = self._rows[rank]
        if kind is Kind.W and stage < 0:
            returned = sorted(slot for other, slot in row.items() if other[0] is Kind.I)
            ends = [returned[microbatch] + 1]
        else:
            ends = [self._end(need) for need in self._needs(key)]
        before = (kind, stage, microbatch - 1)
        return max([*ends, row[before] + _length(before) if microbatch else 0], default=0)

    def _needs(self, key: _Key) -> Iterator[_Key]:
        kind, stage, i = key
        if kind is Kind.F:
            yield from ((Kind.F, s, i) for s in self._shape.graph.predecessors[stage])
        else:
            yield (Kind.F, stage, i)
            yield from ((kind, s, i) for s in self._shape.graph.successors[stage])

    def _end(self, key: _Key) -> int:
        return self._rows[self._shape.owners[key[1]]][key] + _length(key)

    def _closed(self) -> list[_Row]:
        """The same orders without gaps: everything as soon as its rank and its needs allow."""
        closed: list[_Row] = [{} for _ in self._rows]
        free = [0] * len(self._rows)
        for _, rank, key in self._ordered():
            needs = [] if key[0] is Kind.W else self._needs(key)
            owners = self._shape.owners
            slot = max([free[rank], *(closed[owners[need[1]]][need] + _length(need) for need in needs)])
            closed[rank][key] = slot
            free[rank] = slot + _length(key)
        return closed
