"""A hypothesis strategy for schedules that are one change away from a given one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from hypothesis import strategies as st

from ..ir.operations import Operation
from .written import Row, WrittenSchedule

__all__ = ["Change", "Mutation", "mutations"]

Change = Literal["remove", "repeat", "move", "swap", "rename"]


@dataclass(frozen=True)
class Mutation:
    """A schedule with one thing changed, which may have left it valid.

    ``operation`` is what was touched, as it stood on ``rank`` before; ``description`` says what was
    done to it, with slots counted from 0: ``move 0F1 from rank 0, slot 1 to rank 1, slot 0``.
    """

    change: Change
    description: str
    operation: Operation
    rank: int
    before: WrittenSchedule
    after: WrittenSchedule

    @property
    def text(self) -> str:
        """The changed file."""
        return self.after.text


@dataclass(frozen=True)
class _Place:
    """An operation: the rank, its slot on the rank, its place in the slot."""

    rank: int
    slot: int
    part: int
    operation: Operation

    def __str__(self) -> str:
        return f"{self.operation} on rank {self.rank}, slot {self.slot}"


@st.composite
def mutations(draw: st.DrawFn, written: WrittenSchedule) -> Mutation:
    """One operation removed, repeated, moved (to any place of any rank), swapped with another or renamed.

    A moved or repeated operation gets a slot of its own; a renamed one keeps its kind and gets another
    stage or microbatch, up to one beyond the range. The rows after differ from the rows before.
    Raises :class:`ValueError` for a schedule without operations.
    """
    places = [*_places(written)]
    if not places:
        raise ValueError("there is no operation to change")
    place = draw(st.sampled_from(places))
    others = [other for other in places if other.operation != place.operation]
    changes = ["remove", "repeat", "move", "swap", "rename"]
    gaps = [gap for gap in _gaps(written, place) if _moved(written, place, *gap) != written]
    possible = [c for c in changes if (c != "move" or gaps) and (c != "swap" or others)]
    change = draw(st.sampled_from(possible))
    if change == "remove":
        return _mutation("remove", f"remove {place}", place, written, _removed(written, place))
    if change == "repeat":
        rank, slot = draw(st.sampled_from([*_gaps(written)]))
        after = _inserted(written, place.operation, rank, slot)
        return _mutation("repeat", f"repeat {place} on rank {rank}, slot {slot}", place, written, after)
    if change == "move":
        rank, slot = draw(st.sampled_from(gaps))
        text = f"move {place.operation} from rank {place.rank}, slot {place.slot} to rank {rank}, slot {slot}"
        return _mutation("move", text, place, written, _moved(written, place, rank, slot))
    if change == "swap":
        other = draw(st.sampled_from(others))
        after = _replaced(_replaced(written, place, other.operation), other, place.operation)
        return _mutation("swap", f"swap {place} with {other}", place, written, after)
    operation = draw(st.sampled_from([*_renamings(written, place.operation)]))
    after = _replaced(written, place, operation)
    return _mutation("rename", f"rename {place} to {operation}", place, written, after)


def _mutation(
    change: Change,
    description: str,
    place: _Place,
    before: WrittenSchedule,
    after: WrittenSchedule,
) -> Mutation:
    return Mutation(change, description, place.operation, place.rank, before, after)


def _places(written: WrittenSchedule) -> Iterator[_Place]:
    for rank, row in enumerate(written.rows):
        for number, slot in enumerate(row):
            for part, operation in enumerate(slot):
                yield _Place(rank, number, part, operation)


def _gaps(written: WrittenSchedule, without: _Place | None = None) -> Iterator[tuple[int, int]]:
    """Where a slot can be put in, as (rank, slot before which), once ``without`` is taken out."""
    rows = _removed(written, without).rows if without else written.rows
    return ((rank, slot) for rank, row in enumerate(rows) for slot in range(len(row) + 1))


def _renamings(written: WrittenSchedule, operation: Operation) -> Iterator[Operation]:
    kind, stage, microbatch = operation.kind, operation.stage, operation.microbatch
    if microbatch is not None:
        yield from (Operation(kind, stage, i) for i in range(written.microbatches + 1) if i != microbatch)
    yield from (Operation(kind, s, microbatch) for s in range(written.stages + 1) if s != stage)


def _with_row(written: WrittenSchedule, rank: int, row: Row) -> WrittenSchedule:
    return replace(written, rows=(*written.rows[:rank], row, *written.rows[rank + 1 :]))


def _with_slot(written: WrittenSchedule, place: _Place, *parts: Operation) -> WrittenSchedule:
    """The part of a slot at a place replaced by others; a slot left empty disappears."""
    row = written.rows[place.rank]
    slot = (*row[place.slot][: place.part], *parts, *row[place.slot][place.part + 1 :])
    return _with_row(written, place.rank, (*row[: place.slot], *([slot] if slot else []), *row[place.slot + 1 :]))


def _removed(written: WrittenSchedule, place: _Place) -> WrittenSchedule:
    return _with_slot(written, place)


def _replaced(written: WrittenSchedule, place: _Place, operation: Operation) -> WrittenSchedule:
    return _with_slot(written, place, operation)


def _inserted(written: WrittenSchedule, operation: Operation, rank: int, slot: int) -> WrittenSchedule:
    row = written.rows[rank]
    return _with_row(written, rank, (*row[:slot], (operation,), *row[slot:]))


def _moved(written: WrittenSchedule, place: _Place, rank: int, slot: int) -> WrittenSchedule:
    return _inserted(_removed(written, place), place.operation, rank, slot)
