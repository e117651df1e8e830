"""A schedule written out operation by operation, and its text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..diagnostics import Source
from ..expand import expand
from ..ir.operations import Operation
from ..ir.schedule import Schedule
from ..syntax import parse

__all__ = ["Row", "Slot", "WrittenSchedule"]

Slot = tuple[Operation, ...]
Row = tuple[Slot, ...]


@dataclass(frozen=True, repr=False)
class WrittenSchedule:
    """``rows[rank]`` holds the slots of a rank in order; a slot of several operations overlaps them.

    ``declarations`` are the lines of the file about placement, stage graph and ties; they may be empty.
    Nothing promises that the rows are complete or in a possible order.
    """

    stages: int
    microbatches: int
    declarations: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def ranks(self) -> int:
        return len(self.rows)

    @property
    def text(self) -> str:
        """The ``.pipe`` file, in literal operations."""
        sizes = (f"ranks {self.ranks}", f"microbatches {self.microbatches}", f"stages {self.stages}")
        rows = (f"rank {rank}: {_row(row)}".rstrip() for rank, row in enumerate(self.rows))
        return "".join(f"{line}\n" for line in (*sizes, *self.declarations, *rows))

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule that the text expands to.

        Raises :class:`~piper_dsl.diagnostics.PipeError` where an operation is outside the sizes.
        """
        return expand(parse(Source("written.pipe", self.text)))

    def __repr__(self) -> str:
        return f"<written schedule>\n{self.text}"


def _row(row: Row) -> str:
    return " ".join(" & ".join(map(str, slot)) for slot in row)
