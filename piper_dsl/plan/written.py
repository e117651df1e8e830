"""Transfers as a file writes them: which SEND and RECV is which message, in which order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..ir.operations import TRANSFERS, Kind
from ..ir.schedule import Schedule
from ..ir.slots import Slots
from .plan import COMPUTE, RECEIVE, SEND
from .transfers import Transfers, find_transfers

__all__ = ["Written", "has_transfers", "read_written"]


def has_transfers(schedule: Schedule) -> bool:
    """Whether the schedule says its transfers itself."""
    return bool(np.isin(schedule.kind, TRANSFERS).any())


@dataclass(frozen=True, eq=False)
class Written:
    """The steps of every rank as written, as codes (see :mod:`.plan`).

    ``operation`` maps every step, by (transfer, SEND or RECEIVE), to the operation that is it; -1 where
    the file has none. ``strays`` are transfers of the file that no need asks for, or ask twice.
    ``group[t, SEND or RECEIVE]`` is the same number for ends on one rank that are written as one slot: they
    start together, and each ends with its counterpart.
    """

    schedule: Schedule
    slots: Slots
    transfers: Transfers
    rows: list[list[int]]
    operation: np.ndarray
    strays: list[int]
    group: np.ndarray


def read_written(schedule: Schedule) -> Written:
    """Reads the transfers of a schedule that has all of them, or findings to make of it."""
    slots, transfers = schedule.slots, find_transfers(schedule)
    waiting = _by_key(transfers)
    operation = np.full((len(transfers), 3), -1)
    step_of = np.full(len(schedule), -1)
    strays = []
    for index in np.flatnonzero(np.isin(schedule.kind, TRANSFERS)).tolist():
        kind = Kind(int(schedule.kind[index]))
        end = SEND if kind in (Kind.SEND_F, Kind.SEND_B) else RECEIVE
        forward = kind in (Kind.SEND_F, Kind.RECV_F)
        key = (end, forward, int(schedule.stage[index]), int(schedule.microbatch[index]), int(schedule.rank[index]))
        candidates = waiting.get(key)
        if not candidates:
            strays.append(index)
            continue
        transfer = candidates.pop(0)
        operation[transfer, end] = index
        step_of[index] = transfer * 3 + end
    rows = [list(_row(schedule, slots, step_of, rank)) for rank in range(schedule.ranks)]
    group = np.where(operation >= 0, schedule.slot[operation], -1)
    return Written(schedule, slots, transfers, rows, operation, strays, group)


def _by_key(transfers: Transfers) -> dict[tuple[int, bool, int, int, int], list[int]]:
    """The transfers by end, direction, the stage there, microbatch and rank, in order of the other stage."""
    found: dict[tuple[int, bool, int, int, int], list[int]] = {}
    columns = (transfers.source, transfers.target, transfers.microbatch, transfers.sender, transfers.receiver)
    rows = zip(*(column.tolist() for column in columns), transfers.forward.tolist(), strict=True)
    for transfer, (source, target, microbatch, sender, receiver, forward) in enumerate(rows):
        found.setdefault((SEND, forward, source, microbatch, sender), []).append(transfer)
        found.setdefault((RECEIVE, forward, target, microbatch, receiver), []).append(transfer)
    return found


def _row(schedule: Schedule, slots: Slots, step_of: np.ndarray, rank: int) -> Iterator[int]:
    """The steps of a rank; a slot that computes, and then the transfers it holds, if any."""
    for slot in range(int(slots.offsets[rank]), int(slots.offsets[rank + 1])):
        operations = range(int(slots.first[slot]), int(slots.first[slot + 1]))
        if any(schedule.kind[index] not in TRANSFERS for index in operations):
            yield slot * 3 + COMPUTE
        yield from (int(step_of[index]) for index in operations if step_of[index] >= 0)
