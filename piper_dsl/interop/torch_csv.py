"""PyTorch's schedule CSVs: one row a rank, one cell an operation, tokens as PyTorch writes them.

Two forms: `compute_only`, and `compute_comms` with SEND, RECV and the handling of sharded parameters.
The form is detected, the placement read off the rows. Nothing is guessed and nothing dropped: a cell
matches as a whole or is an error at its row and cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from ..diagnostics import Diagnostic, PipeError, Source, Span, in_source_order
from ..ir.graph import StageGraph
from ..ir.operations import PER_MICROBATCH, Kind
from ..ir.origin import Origin
from ..ir.placement import Placement
from ..ir.schedule import Schedule

__all__ = ["CSV_SUFFIX", "read_csv", "write_csv"]

CSV_SUFFIX = ".csv"
_TOKEN = re.compile(r"(0|[1-9][0-9]{0,8})([A-Z_]+?)(0|[1-9][0-9]{0,8})?")
_OVERLAP = re.compile(r"\(\s*([^;()]+?)\s*;\s*([^;()]+?)\s*\)OVERLAP_F_B")
_MAX_FINDINGS = 100
_MAX_CELLS = 10_000_000
_UNKNOWN_TO_PYTORCH = (Kind.OPT, Kind.R)


@dataclass(frozen=True)
class _Cell:
    """One operation of a row; ``joined`` to the one before in an overlapped slot."""

    kind: Kind
    stage: int
    microbatch: int
    joined: bool
    start: int
    end: int


def read_csv(source: Source) -> Schedule:
    """The schedule of a CSV in either of PyTorch's forms.

    Stages and microbatches are as many as the tokens name. Raises :class:`PipeError` with every cell
    that is no operation, naming row and cell, both counted from 1.
    """
    reader = _Reader(source)
    rows = reader.rows()
    if reader.findings:
        raise PipeError(*in_source_order(reader.findings[:_MAX_FINDINGS]))
    cells = [cell for row in rows for cell in row]
    if not cells:
        raise PipeError(Diagnostic("P101", f"{source.name} has no operations", Span(source, 0, 0)))
    stages = max(cell.stage for cell in cells) + 1
    microbatches = max(max(cell.microbatch for cell in cells) + 1, 1)
    if stages * microbatches > _MAX_CELLS:
        largest = max(cells, key=lambda cell: max(cell.stage, cell.microbatch))
        message = f"{stages:,} stages of {microbatches:,} microbatches are more than {_MAX_CELLS:,} operations"
        raise PipeError(Diagnostic("P208", message, Span(source, largest.start, largest.end)))
    placement = _placement(source, rows, stages, microbatches)
    none = np.zeros(0, dtype=np.int64)
    count = len(cells)
    origin = Origin(
        source=source,
        site=np.arange(count, dtype=np.int32),
        context=np.full(count, -1, dtype=np.int32),
        starts=np.array([cell.start for cell in cells]),
        ends=np.array([cell.end for cell in cells]),
        parents=none,
        variables=none,
        values=none,
        names=(),
    )
    return Schedule(
        name=source.name.rsplit("/", 1)[-1].removesuffix(CSV_SUFFIX),
        ranks=len(rows),
        stages=stages,
        microbatches=microbatches,
        placement=placement,
        graph=StageGraph.chain(stages),
        ties=(),
        kind=np.array([cell.kind for cell in cells], dtype=np.int8),
        stage=np.array([cell.stage for cell in cells], dtype=np.int32),
        microbatch=np.array([cell.microbatch for cell in cells], dtype=np.int32),
        joined=np.array([cell.joined for cell in cells]),
        offsets=np.cumsum([0, *(len(row) for row in rows)]),
        declared_costs=np.full((len(Kind), stages), np.nan),
        overlap_costs={},
        parameters=MappingProxyType({}),
        origin=origin,
    )


class _Reader:
    """Cells of a text, with the findings about those that are no operations."""

    def __init__(self, source: Source) -> None:
        self.findings: list[Diagnostic] = []
        self._source = source

    def rows(self) -> list[list[_Cell]]:
        found: list[list[_Cell]] = []
        start = 0
        for number, line in enumerate(self._source.text.split("\n"), 1):
            found.append(list(self._row(number, line, start)))
            start += len(line) + 1
        while found and not found[-1]:
            found.pop()
        return found

    def _row(self, number: int, line: str, start: int) -> Iterator[_Cell]:
        position = start
        for cell, text in enumerate(line.split(","), 1):
            token = text.strip(" \r\t")
            if len(token) > 1 and token[0] == token[-1] == '"':
                token = token[1:-1].strip(" \t")
            if token:
                first = position + text.index(token)
                yield from self._cell(number, cell, token, first)
            position += len(text) + 1

    def _cell(self, row: int, cell: int, token: str, start: int) -> Iterator[_Cell]:
        overlap = _OVERLAP.fullmatch(token)
        parts = overlap.groups() if overlap else (token,)
        read = [self._operation(part, index > 0, start, start + len(token)) for index, part in enumerate(parts)]
        if None in read or (overlap and sorted(o.kind for o in read if o) != [Kind.F, Kind.B]):
            span = Span(self._source, start, start + len(token))
            help_ = "a cell is a token such as 0F0, 2I1, 1SEND_F3 or (4F4;3B0)OVERLAP_F_B; there is no header"
            self.findings.append(
                Diagnostic("P104", f"`{token}` in row {row}, cell {cell} is not an operation", span, help_)
            )
            return
        yield from (operation for operation in read if operation)

    def _operation(self, token: str, joined: bool, start: int, end: int) -> _Cell | None:
        match = _TOKEN.fullmatch(token)
        if match is None or match[2] not in Kind.__members__:
            return None
        kind = Kind[match[2]]
        if kind in _UNKNOWN_TO_PYTORCH:
            return None
        if (kind in PER_MICROBATCH) != (match[3] is not None):
            return None
        return _Cell(kind, int(match[1]), int(match[3]) if match[3] else -1, joined, start, end)


def _placement(source: Source, rows: list[list[_Cell]], stages: int, microbatches: int) -> Placement:
    """The rank of every stage: the row that computes it. Raises PipeError for a stage on two rows."""
    owner: dict[int, int] = {}
    for rank, row in enumerate(rows):
        for cell in row:
            known = owner.setdefault(cell.stage, rank)
            if known != rank:
                message = f"stage {cell.stage} is on row {known + 1} and on row {rank + 1}"
                help_ = "PyTorch's CSV has every stage on one rank; copies of a stage need a .pipe file"
                raise PipeError(Diagnostic("P403", message, Span(source, cell.start, cell.end), help_))
    rank_of = np.array([owner.get(stage, 0) for stage in range(stages)], dtype=np.int32)
    return Placement.by_stage(rank_of, len(rows), microbatches)


def write_csv(schedule: Schedule, *, lossy: bool = False) -> str:
    """A schedule as PyTorch's CSV, in the form that its operations call for.

    OPT, R and stages with copies are nothing PyTorch's CSV can say: they raise :class:`PipeError` (P901),
    or, where ``lossy``, OPT is left out.
    """
    findings = list(_unsayable(schedule, lossy))
    if findings:
        raise PipeError(*findings)
    return "".join(f"{','.join(_tokens(schedule, rank))}\n" for rank in range(schedule.ranks))


def _unsayable(schedule: Schedule, lossy: bool) -> Iterator[Diagnostic]:
    for kind, why in ((Kind.OPT, "optimizer steps"), (Kind.R, "recomputation")):
        found = np.flatnonzero(schedule.kind == kind)
        if len(found) and not (lossy and kind is Kind.OPT):
            help_ = "`--lossy` leaves them out" if kind is Kind.OPT else None
            span = schedule.origin.span(int(found[0]))
            yield Diagnostic("P901", f"PyTorch's CSV has no {why}", span, help_)
    if any(len(copies) > 1 for copies in schedule.placement.copies):
        yield Diagnostic("P901", "PyTorch's CSV cannot place copies of a stage on several ranks")
    if schedule.graph != StageGraph.chain(schedule.stages):
        yield Diagnostic("P901", "PyTorch's CSV knows the chain of stages only, not the edges of this schedule")
    if schedule.ties:
        yield Diagnostic("P901", "PyTorch's CSV cannot tie stages")
    if schedule.offsets[-2] == schedule.offsets[-1]:
        yield Diagnostic("P901", "PyTorch's CSV cannot end with a rank that does nothing")
    for slot in np.flatnonzero(np.bincount(schedule.slot, minlength=1) > 1).tolist():
        kinds = sorted(schedule.kind[schedule.slot == slot].tolist())
        if kinds != [Kind.F, Kind.B]:
            index = int(np.flatnonzero(schedule.slot == slot)[0])
            message = "PyTorch's CSV overlaps one F with one B only"
            yield Diagnostic("P901", message, schedule.origin.span(index))
            return


def _tokens(schedule: Schedule, rank: int) -> Iterator[str]:
    row = [index for index in range(*schedule.offsets[rank : rank + 2].tolist()) if schedule.kind[index] != Kind.OPT]
    for position, index in enumerate(row):
        if schedule.joined[index]:
            continue
        following = row[position + 1] if position + 1 < len(row) else None
        if following is not None and schedule.joined[following]:
            yield f"({schedule.operation(index)};{schedule.operation(following)})OVERLAP_F_B"
        else:
            yield str(schedule.operation(index))
