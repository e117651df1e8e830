"""The smallest change after which written transfers complete: tried, not guessed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..plan.completion import complete
from ..plan.plan import COMPUTE, RECEIVE, SEND
from ..plan.transport import Transport
from ..plan.written import Written

__all__ = ["find_repair"]

_MAX_STEPS = 5_000
"""Larger files get the advice that always holds, without trials."""
_SAFER = ("capacity=1", "capacity=2", "direction", "buffered")


def find_repair(written: Written, transport: Transport) -> str:
    """What to do about transfers that do not complete: one receive moved, one pair grouped, another transport.

    What always helps is to leave the transfers to the compiler.
    """
    always = "remove every SEND and RECV: the compiler then places them so that they complete"
    if sum(map(len, written.rows)) > _MAX_STEPS:
        return always
    for changed, words in (*_moved(written, transport), *_grouped(written, transport)):
        if not complete(changed, transport).cycle:
            return f"{words}; or {always}"
    for name in _SAFER:
        if not complete(written, Transport.parse(name)).cycle:
            return f"it completes on transport `{name}`; or {always}"
    return always


def _stuck_transfers(written: Written, transport: Transport) -> list[tuple[int, int, int]]:
    """Where the transfers of the cycle stand: (rank, position in its row, step)."""
    circle = {step for steps in complete(written, transport).cycle for step in steps if step % 3 != COMPUTE}
    return [(r, k, step) for r, row in enumerate(written.rows) for k, step in enumerate(row) if step in circle]


def _moved(written: Written, transport: Transport) -> Iterator[tuple[Written, str]]:
    """One RECV earlier on its rank, to before the transfers that are stuck there."""
    stuck = _stuck_transfers(written, transport)
    for rank, row in enumerate(written.rows):
        places = [position for r, position, _ in stuck if r == rank]
        for position in places:
            for later in range(position + 1, len(row)):
                if row[later] % 3 == RECEIVE:
                    for target in range(position, max(-1, position - 3), -1):
                        moved = [*row[:target], row[later], *row[target:later], *row[later + 1 :]]
                        rows = [moved if r == rank else other for r, other in enumerate(written.rows)]
                        words = (
                            f"on rank {rank}, move {_name(written, row[later])} before {_name(written, row[target])}"
                        )
                        yield replace(written, rows=rows), words
                    break


def _grouped(written: Written, transport: Transport) -> Iterator[tuple[Written, str]]:
    """Neighbours of a rank, a SEND and a RECV that are stuck, made one group on every rank."""
    stuck = _stuck_transfers(written, transport)
    group = written.group.copy()
    words = []
    for rank, row in enumerate(written.rows):
        mine = [position for r, position, _ in stuck if r == rank]
        for position in mine:
            pair = [step for step in row[position : position + 2] if step % 3 != COMPUTE]
            if {step % 3 for step in pair} == {SEND, RECEIVE}:
                one, other = pair
                group[other // 3, other % 3] = group[one // 3, one % 3]
                words.append(" & ".join(_name(written, step) for step in pair))
                break
    if words:
        yield replace(written, group=group), f"group what is exchanged: {', '.join(words)}"


def _name(written: Written, step: int) -> str:
    schedule = written.schedule
    if step % 3 == COMPUTE:
        return str(schedule.operation(int(written.slots.first[step // 3])))
    return str(schedule.operation(int(written.operation[step // 3, step % 3])))
