"""A hypothesis strategy for valid schedules of every shape.

A valid schedule is valid by construction: of the needs of its operations (semantics, section 1) a
linear extension is drawn and projected on the ranks. All draws are small integers whose simplest value
is the plainest choice, so that failures shrink to a chain on few ranks, one microbatch after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from hypothesis import strategies as st

from ..ir.operations import COMPUTE, Kind, Operation
from .written import Row, Slot, WrittenSchedule

__all__ = ["schedules"]

_Node = tuple[int, Operation]
"""An operation and the rank that it is on: stages with copies are stepped on every rank that holds them."""
_LARGEST_SLOT = 3
_T = TypeVar("_T")


@dataclass(frozen=True)
class _Shape:
    """What is run where. ``rank_of``, ``backward`` (kinds) and ``recompute`` are indexed [stage][microbatch]."""

    ranks: int
    stages: int
    microbatches: int
    rank_of: tuple[tuple[int, ...], ...]
    edges: tuple[tuple[int, int], ...]
    ties: tuple[tuple[int, ...], ...]
    backward: tuple[tuple[tuple[Kind, ...], ...], ...]
    recompute: tuple[tuple[bool, ...], ...]
    optimizer: bool

    def cells(self) -> Iterator[tuple[int, int]]:
        return ((s, i) for s in range(self.stages) for i in range(self.microbatches))

    def node(self, kind: Kind, stage: int, microbatch: int) -> _Node:
        return self.rank_of[stage][microbatch], Operation(kind, stage, microbatch)

    def backwards(self, stage: int) -> set[_Node]:
        """The operations that end the backward of a stage, for all microbatches."""
        cells = ((self.backward[stage][i], i) for i in range(self.microbatches))
        return {self.node(kinds[-1], stage, i) for kinds, i in cells if kinds}

    def needs(self) -> dict[_Node, set[_Node]]:
        """Of every operation, those that it needs."""
        found: dict[_Node, set[_Node]] = {}
        for s, i in self.cells():
            forward = self.node(Kind.F, s, i)
            found[forward] = {self.node(Kind.F, q, i) for q, t in self.edges if t == s}
            before = {forward}
            if self.recompute[s][i]:
                found[self.node(Kind.R, s, i)] = {forward}
                before |= {self.node(Kind.R, s, i)}
            if kinds := self.backward[s][i]:
                after = {self.node(self.backward[t][i][0], t, i) for q, t in self.edges if q == s}
                found[self.node(kinds[0], s, i)] = before | after
            if len(kinds) > 1:
                found[self.node(kinds[1], s, i)] = {self.node(kinds[0], s, i)}
        if self.optimizer:
            for s in range(self.stages):
                together = {s}.union(*(tie for tie in self.ties if s in tie))
                step = {(rank, Operation(Kind.OPT, s)) for rank in self.rank_of[s]}
                found.update(dict.fromkeys(step, set().union(*map(self.backwards, together))))
        return found

    def declarations(self) -> tuple[str, ...]:
        lines = [*self._placement()]
        if self.edges != _chain(self.stages):
            lines += [f"edge {a} -> {b}" for a, b in self.edges]
        lines += [f"tie {', '.join(map(str, tie))}" for tie in self.ties]
        return tuple(lines)

    def _placement(self) -> Iterator[str]:
        by_stage = [row[0] for row in self.rank_of]
        if any(len(set(row)) > 1 for row in self.rank_of):
            for s, row in enumerate(self.rank_of):
                yield f"fn on{s}(i) = {_chosen('i', [str(rank) for rank in row])}"
            yield f"place s, i on {_chosen('s', [f'on{s}(i)' for s in range(self.stages)])}"
        elif by_stage != _loop(self.stages, self.ranks):
            is_vee = self.stages % self.ranks == 0 and by_stage == _vee(self.stages, self.ranks)
            yield "place vee" if is_vee else f"place s on {_chosen('s', [str(rank) for rank in by_stage])}"


def _chosen(name: str, values: list[str]) -> str:
    """An expression whose value is ``values[name]``."""
    shortest = len(values)
    while shortest > 1 and values[shortest - 2] == values[-1]:
        shortest -= 1
    branches = [f"{value} if {name} == {index} else " for index, value in enumerate(values[: shortest - 1])]
    return "".join(branches) + values[-1]


def _chain(stages: int) -> tuple[tuple[int, int], ...]:
    return tuple((s, s + 1) for s in range(stages - 1))


def _loop(stages: int, ranks: int) -> list[int]:
    return [s % ranks for s in range(stages)]


def _vee(stages: int, ranks: int) -> list[int]:
    return [r if s // ranks % 2 == 0 else ranks - 1 - r for s, r in enumerate(_loop(stages, ranks))]


@st.composite
def schedules(
    draw: st.DrawFn,
    *,
    max_ranks: int = 3,
    max_stages: int = 4,
    max_microbatches: int = 3,
    copies: bool = True,
    graphs: bool = True,
    ties: bool = True,
    forward_only: bool = True,
    split: bool = True,
    recompute: bool = True,
    optimizer: bool = True,
    overlap: bool = True,
) -> WrittenSchedule:
    """Complete schedules in a possible order, of 1 rank, stage and microbatch up to the bounds.

    Placements are loop, vee, any rank per stage and, with ``copies``, any rank per (stage, microbatch);
    some ranks may own nothing. With ``graphs`` the stages may form any acyclic graph instead of the
    chain; with ``ties`` they may share parameters. Backwards are whole or, with ``split``, split, the
    same everywhere or by stage or by (stage, microbatch); ``recompute`` may add R likewise,
    ``optimizer`` may step all stages, ``forward_only`` may leave every backward out, and ``overlap``
    may join up to three operations in a slot. All of it is optional in what is drawn. Bounds may be
    any positive number up to about 40 stages and microbatches: beyond, the text nests too deep.
    """
    ranks = draw(st.integers(1, max_ranks))
    stages = draw(st.integers(1, max_stages) | st.sampled_from(range(1, max_stages + 1)[ranks - 1 :: ranks] or [1]))
    microbatches = draw(st.integers(1, max_microbatches))
    evaluates = forward_only and draw(st.sampled_from([False] * 7 + [True]))
    kinds: list[tuple[Kind, ...]] = [()] if evaluates else [(Kind.B,), (Kind.I, Kind.W)] if split else [(Kind.B,)]
    shape = _Shape(
        ranks,
        stages,
        microbatches,
        draw(_placements(ranks, stages, microbatches, copies=copies)),
        draw(_edges(stages)) if graphs else _chain(stages),
        draw(_ties(stages)) if ties else (),
        draw(_tables(stages, microbatches, st.sampled_from(kinds))),
        draw(_tables(stages, microbatches, st.booleans() if recompute and not evaluates else st.just(False))),
        optimizer and not evaluates and draw(st.booleans()),
    )
    joins = overlap and draw(st.booleans())
    return WrittenSchedule(stages, microbatches, shape.declarations(), _rows(draw, shape, joins=joins))


@st.composite
def _tables(draw: st.DrawFn, stages: int, microbatches: int, cell: st.SearchStrategy[_T]) -> tuple[tuple[_T, ...], ...]:
    """A value per (stage, microbatch): one for all, one per stage, or all different."""
    grain = draw(st.sampled_from(["all", "stage", "cell"]))
    if grain == "all":
        return ((draw(cell),) * microbatches,) * stages
    if grain == "stage":
        return tuple((draw(cell),) * microbatches for _ in range(stages))
    return tuple(tuple(draw(cell) for _ in range(microbatches)) for _ in range(stages))


@st.composite
def _placements(
    draw: st.DrawFn, ranks: int, stages: int, microbatches: int, *, copies: bool
) -> tuple[tuple[int, ...], ...]:
    folds = stages % ranks == 0 and stages > ranks > 1
    rule = draw(st.sampled_from(["loop", *["vee"][:folds], "stage", *["cell"][:copies]]))
    any_rank = st.integers(0, ranks - 1)
    if rule == "cell":
        return tuple(tuple(draw(any_rank) for _ in range(microbatches)) for _ in range(stages))
    if rule == "stage":
        by_stage = [draw(any_rank) for _ in range(stages)]
    else:
        by_stage = (_loop if rule == "loop" else _vee)(stages, ranks)
    return tuple((rank,) * microbatches for rank in by_stage)


@st.composite
def _edges(draw: st.DrawFn, stages: int) -> tuple[tuple[int, int], ...]:
    """The chain, or any acyclic graph with an edge; sorted. (A file cannot say that there is none.)"""
    if stages == 1 or draw(st.integers(0, 2)) == 0:
        return _chain(stages)
    order = draw(st.permutations(range(stages)))
    pairs = [(a, b) for place, a in enumerate(order) for b in order[place + 1 :]]
    return tuple(sorted(draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=2 * stages, unique=True))))


def _ties(stages: int) -> st.SearchStrategy[tuple[tuple[int, ...], ...]]:
    if stages == 1:
        return st.just(())
    tie = st.lists(st.integers(0, stages - 1), min_size=2, max_size=3, unique=True).map(lambda t: tuple(sorted(t)))
    return st.one_of(st.just(()), st.just(()), tie.map(lambda t: (t,)))


def _rows(draw: st.DrawFn, shape: _Shape, *, joins: bool) -> tuple[Row, ...]:
    """A linear extension of the needs, drawn slot by slot, as what it leaves on every rank."""
    waiting = shape.needs()
    rows: list[list[Slot]] = [[] for _ in range(shape.ranks)]
    while waiting:
        ready = sorted((node for node, needs in waiting.items() if needs.isdisjoint(waiting)), key=_plainness)
        rank, first = ready.pop(_index(draw, len(ready)))
        slot = [first]
        partners = (
            [op for r, op in ready if r == rank and op.kind in COMPUTE] if joins and first.kind in COMPUTE else []
        )
        while partners and len(slot) < _LARGEST_SLOT and draw(st.booleans()):
            slot.append(partners.pop(_index(draw, len(partners))))
        rows[rank].append(tuple(slot))
        for operation in slot:
            del waiting[rank, operation]
    return tuple(map(tuple, rows))


def _plainness(node: _Node) -> tuple[bool, int, Kind, int, int]:
    """The order in which operations are run where nothing else is drawn: one microbatch after another."""
    rank, operation = node
    microbatch = operation.microbatch
    return microbatch is None, microbatch or 0, operation.kind, operation.stage, rank


def _index(draw: st.DrawFn, count: int) -> int:
    return draw(st.integers(0, count - 1)) if count > 1 else 0
