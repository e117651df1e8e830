"""From a checked schedule to a Program: transfers placed in one global order, then projected.

Every transfer is one element of the global order, right after its producer; each rank keeps of the
order what concerns it. No two ranks can then disagree about what comes first, which is why a lowered
program cannot stall (the idea of JaxPP's lowering; see also docs/semantics.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..check import check
from ..diagnostics import PipeError
from ..ir.needs import positions
from ..ir.operations import Kind
from ..ir.schedule import Schedule
from ..simulate import Costs, simulate
from .program import Code, Program

__all__ = ["lower"]


@dataclass(frozen=True, eq=False)
class _Block:
    """Instructions to be sorted into ranks: ``key`` is their place in the global order."""

    rank: np.ndarray
    key: np.ndarray
    columns: np.ndarray


def lower(schedule: Schedule, costs: Costs | None = None) -> Program:
    """The program of a schedule, its transfers in the order of a simulation under ``costs``.

    Raises :class:`PipeError` for a schedule that does not check.
    """
    findings = check(schedule)
    if findings:
        raise PipeError(*findings)
    place = _global_places(schedule, costs)
    blocks = [_operations(schedule, place), *_transfers(schedule, place), *_frees(schedule, place)]
    rank = np.concatenate([block.rank for block in blocks])
    key = np.concatenate([block.key for block in blocks])
    columns = np.concatenate([block.columns for block in blocks]).astype(np.int32)
    by_rank = np.lexsort((key, rank))
    return Program(
        name=schedule.name,
        microbatches=schedule.microbatches,
        placement=schedule.placement,
        graph=schedule.graph,
        columns=columns[by_rank],
        offsets=np.searchsorted(rank[by_rank], np.arange(schedule.ranks + 1)),
        order=np.argsort(key[by_rank], kind="stable"),
    )


# Places in the global order are spread out, so that what follows an operation fits behind it:
# its transfers, sends before receives, then what it frees.
_SPREAD = 8
_SEND, _RECEIVE, _FREE = 1, 2, 3


def _global_places(schedule: Schedule, costs: Costs | None) -> np.ndarray:
    """The place of every operation in the global order: by simulated start, then by needs."""
    timeline = simulate(schedule, costs)
    order = np.lexsort((timeline.visited, timeline.start))
    place = np.empty(len(schedule), dtype=np.int64)
    place[order] = np.arange(len(schedule)) * _SPREAD
    return place


def _columns(code: Code, *columns: np.ndarray) -> np.ndarray:
    size = len(columns[0])
    padded = [*columns, *[np.full(size, -1)] * (4 - len(columns))]
    return np.stack([np.full(size, int(code)), *padded], axis=1)


def _operations(schedule: Schedule, place: np.ndarray) -> _Block:
    none = np.full(len(schedule), -1)
    columns = np.stack([schedule.kind, schedule.stage, schedule.microbatch, none, none], axis=1)
    return _Block(schedule.rank, place, columns)


def _transfers(schedule: Schedule, place: np.ndarray) -> Iterator[_Block]:
    """SEND and RECV for every need between ranks, behind the operation that produces."""
    at = positions(schedule)
    gradient = np.where(at[Kind.I] >= 0, at[Kind.I], at[Kind.B])
    for source, target in schedule.graph.edges:
        yield from _edge(schedule, place, at[Kind.F], source, target, (Code.SEND_F, Code.RECV_F))
        yield from _edge(schedule, place, gradient, target, source, (Code.SEND_B, Code.RECV_B))


def _edge(
    schedule: Schedule, place: np.ndarray, at: np.ndarray, source: int, target: int, codes: tuple[Code, Code]
) -> Iterator[_Block]:
    """The transfers of one edge of the stage graph, for all microbatches."""
    rank_of = schedule.placement.rank_of
    crossing = (rank_of[source] != rank_of[target]) & (at[source] >= 0)
    microbatch = np.flatnonzero(crossing)
    produced = place[at[source][microbatch]]
    here, there = rank_of[source][microbatch], rank_of[target][microbatch]
    sources, targets = np.full(len(microbatch), source), np.full(len(microbatch), target)
    yield _Block(here, produced + _SEND, _columns(codes[0], sources, microbatch, there, targets))
    yield _Block(there, produced + _RECEIVE, _columns(codes[1], targets, microbatch, here, sources))


def _frees(schedule: Schedule, place: np.ndarray) -> Iterator[_Block]:
    """FREE behind the last operation of every (stage, microbatch): W, else B, else F."""
    at = positions(schedule)
    last = np.where(at[Kind.W] >= 0, at[Kind.W], np.where(at[Kind.B] >= 0, at[Kind.B], at[Kind.F]))
    stage, microbatch = np.indices(last.shape).reshape(2, -1)
    index = last.ravel()
    yield _Block(schedule.rank[index], place[index] + _FREE, _columns(Code.FREE, stage, microbatch))
