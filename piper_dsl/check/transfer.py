"""Do the transfers that a file writes reach their ends, on a given transport?

A schedule without SEND and RECV has nothing to check here: the compiler places its transfers in one
global order, which completes on every transport.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..diagnostics import Diagnostic, Related
from ..ir.operations import Kind, Operation
from ..ir.schedule import Schedule
from ..plan.completion import Completion, complete, written_pairs
from ..plan.plan import COMPUTE, RECEIVE, SEND
from ..plan.transport import Transport
from ..plan.written import Written, has_transfers, read_written
from .transfer_repair import find_repair

__all__ = ["check_collectives", "check_transfers"]


def check_transfers(schedule: Schedule, transport: Transport) -> list[Diagnostic]:
    """Findings P501 to P504 about written transfers; empty where the file leaves them to the compiler."""
    if not has_transfers(schedule):
        return []
    written = read_written(schedule)
    findings = [*_unmatched(written), *_out_of_turn(written)]
    if transport.by_order:
        findings += _swapped(written)
    if findings:
        return findings
    completion = complete(written, transport)
    return [_stuck(written, transport, completion)] if completion.cycle else []


# --- SEND and RECV, one to one -----------------------------------------------------------------


def _unmatched(written: Written) -> Iterator[Diagnostic]:
    schedule, transfers = written.schedule, written.transfers
    for index in written.strays:
        message = f"{schedule.operation(index)} moves nothing that anybody needs, or moves it twice"
        yield Diagnostic("P503", message + schedule.where(index), schedule.origin.span(index), "remove it")
    for transfer in range(len(transfers)):
        for end, name in ((SEND, transfers.send(transfer)), (RECEIVE, transfers.receive(transfer))):
            if written.operation[transfer, end] < 0:
                yield _missing(written, transfer, end, name)


def _missing(written: Written, transfer: int, end: int, name: Operation) -> Diagnostic:
    schedule, transfers = written.schedule, written.transfers
    index = int((transfers.producer if end == SEND else transfers.consumer)[transfer])
    ranks = f"rank {transfers.sender[transfer]} to rank {transfers.receiver[transfer]}"
    message = f"the transfer from {ranks} has no {name}{schedule.where(index)}"
    where = "behind" if end == SEND else "before"
    help_ = f"add {name} {where} {schedule.operation(index)}; a file with any transfer must have all of them"
    return Diagnostic("P503", message, schedule.origin.span(index), help_)


def _out_of_turn(written: Written) -> Iterator[Diagnostic]:
    """A SEND before what it sends is computed, or a RECV behind what needs it, on one rank."""
    schedule, transfers = written.schedule, written.transfers
    for transfer, (_, send, receive) in enumerate(written.operation.tolist()):
        producer, consumer = int(transfers.producer[transfer]), int(transfers.consumer[transfer])
        for index, other, early in ((send, producer, send < producer), (consumer, receive, receive > consumer)):
            if min(index, other) >= 0 and early:
                one, needed = schedule.operation(index), schedule.operation(other)
                message = f"{one} stands before {needed}, which it needs{schedule.where(index)}"
                related = (Related("needed here", schedule.origin.span(other)),)
                span = schedule.origin.span(index)
                yield Diagnostic("P504", message, span, f"move {needed} before {one}", related=related)


def _swapped(written: Written) -> Iterator[Diagnostic]:
    """Directed pairs that send in one order and receive in another: the tensors would be swapped."""
    schedule, transfers = written.schedule, written.transfers
    for (sender, receiver), (sent, received) in sorted(written_pairs(written).items()):
        for one, other in zip(sent, received, strict=False):
            if one == other:
                continue
            send, receive = int(written.operation[one, SEND]), int(written.operation[other, RECEIVE])
            message = (
                f"rank {sender} sends {transfers.send(one)} where rank {receiver} receives {transfers.receive(other)}: "
                "matched by order, the tensors are swapped"
            )
            related = (Related(f"rank {receiver} takes it for this", schedule.origin.span(receive)),)
            help_ = f"on rank {receiver}, receive in the order in which rank {sender} sends"
            yield Diagnostic("P502", message, schedule.origin.span(send), help_, related=related)
            break


# --- waiting -----------------------------------------------------------------------------------


def _stuck(written: Written, transport: Transport, completion: Completion) -> Diagnostic:
    schedule = written.schedule
    heads = _heads(written, completion)
    transfers = [step for steps in completion.cycle for step in steps if step % 3 != COMPUTE]
    first = next((index for index in heads if index >= 0), None)
    places = {index: schedule.origin.span(index) for index in (_index(written, s) for s in transfers) if index >= 0}
    ordered = sorted(places)
    message = f"transfers wait for each other on transport `{transport}`"
    names = [" = ".join(dict.fromkeys(str(_name(written, step)) for step in steps)) for steps in completion.cycle]
    notes = [f"cycle: {' → '.join([*names, names[0]])}", f"stuck: {', '.join(_stuck_at(written, heads))}"]
    if transport.rendezvous:
        notes.append("a debug run with small messages may pass all the same, where they fit a buffer")
    return Diagnostic(
        "P501",
        message,
        places[ordered[0]] if ordered else (schedule.origin.span(first) if first is not None else None),
        find_repair(written, transport),
        label=_waits(written, ordered[0]) if ordered else "",
        related=tuple(Related(_waits(written, index), places[index]) for index in ordered[1:]),
        notes=tuple(notes),
    )


def _heads(written: Written, completion: Completion) -> list[int]:
    """The operation that every rank is stuck at, -1 for one that got to its end.

    Where computing does not wait for transfers, the transfer is what is stuck.
    """
    done = set(completion.order.tolist())
    heads = []
    for row in written.rows:
        waiting = [step for step in row if step not in done]
        transfers = [step for step in waiting if step % 3 != COMPUTE]
        heads.append(_index(written, (transfers or waiting)[0]) if waiting else -1)
    return heads


def _stuck_at(written: Written, heads: list[int]) -> list[str]:
    return [f"rank {rank} at {written.schedule.operation(i)}" for rank, i in enumerate(heads) if i >= 0]


def _index(written: Written, step: int) -> int:
    """The operation that a step is."""
    if step % 3 == COMPUTE:
        return int(written.slots.first[step // 3])
    return int(written.operation[step // 3, step % 3])


def _name(written: Written, step: int) -> Operation:
    return written.schedule.operation(_index(written, step))


def _waits(written: Written, index: int) -> str:
    schedule = written.schedule
    rank, kind = schedule.rank[index], Kind(int(schedule.kind[index]))
    what = "to be received" if kind in (Kind.SEND_F, Kind.SEND_B) else "to be sent"
    return f"rank {rank} waits for this {what}{schedule.where(index)}"


# --- collectives -------------------------------------------------------------------------------


def check_collectives(schedule: Schedule) -> Iterator[Diagnostic]:
    """Finding P505: the ranks that hold a stage start its collectives in different orders."""
    rows: dict[int, list[int]] = {}
    for index in np.flatnonzero(np.isin(schedule.kind, (Kind.REDUCE_GRAD, Kind.UNSHARD, Kind.RESHARD))).tolist():
        rows.setdefault(int(schedule.rank[index]), []).append(index)
    ranks = sorted(rows)
    for position, rank in enumerate(ranks):
        for other in ranks[position + 1 :]:
            yield from _compare_collectives(schedule, rank, rows[rank], other, rows[other])


def _compare_collectives(
    schedule: Schedule, rank: int, own: list[int], other: int, theirs: list[int]
) -> Iterator[Diagnostic]:
    shared = {s for s in range(schedule.stages) if {rank, other} <= set(schedule.placement.copies[s])}
    mine, others = ([i for i in row if schedule.stage[i] in shared] for row in (own, theirs))
    for one, two in zip(mine, others, strict=False):
        if schedule.operation(one) != schedule.operation(two):
            message = (
                f"rank {rank} starts {schedule.operation(one)} where rank {other} starts {schedule.operation(two)}"
            )
            related = (Related(f"rank {other} starts this", schedule.origin.span(two)),)
            help_ = "all ranks that hold a stage start its collectives in one order"
            yield Diagnostic("P505", message, schedule.origin.span(one), help_, related=related)
            return
