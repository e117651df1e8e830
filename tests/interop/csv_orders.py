"""What the tests of CSVs share: orders as rows of PyTorch's tokens, and schedules as plain values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import piper_dsl as piper
from piper_dsl.diagnostics import PipeError, Source
from piper_dsl.expand import expand
from piper_dsl.interop import read_csv
from piper_dsl.syntax import parse

HERE = Path(__file__).parent
REFERENCE: dict[str, Any] = json.loads((HERE.parent / "data" / "reference_orders.json").read_text(encoding="utf-8"))
LOWERED: dict[str, Any] = json.loads((HERE / "data" / "lowered_orders.json").read_text(encoding="utf-8"))
SAYABLE = {name: order for name, order in REFERENCE.items() if not order["replicated_stages"]}
"""The reference orders without copies of a stage, which no CSV can say."""


def text_of(rows: Sequence[Sequence[Any]]) -> str:
    """A CSV as PyTorch's writer lays it out, with `\\n` for the end of a line; None is an empty cell."""
    return "".join(",".join("" if cell is None else str(cell) for cell in row) + "\n" for row in rows)


def read(text: str, name: str = "x.csv") -> piper.Schedule:
    return read_csv(Source(name, text))


def refusal(text: str) -> tuple[piper.Diagnostic, ...]:
    """What reading a CSV, or checking what was read, finds; fails if that is nothing."""
    try:
        findings = piper.check(read(text))
    except PipeError as error:
        findings = error.diagnostics
    assert findings, f"accepted:\n{text}"
    return findings


def places(findings: Sequence[piper.Diagnostic]) -> list[tuple[str, int, int, int, str]]:
    """Code, line, first column, column behind the last, and the text between, of every finding."""
    found = []
    for finding in findings:
        assert finding.span, finding
        assert finding.span.end_line == finding.span.line
        span = finding.span
        found.append((finding.code, span.line, span.column, span.end_column, span.text))
    return found


def rows(schedule: piper.Schedule) -> list[list[str]]:
    """The cells of every rank, empty ones left out, read off the operations."""
    found = []
    for rank in range(schedule.ranks):
        row: list[str] = []
        for index, operation in enumerate(schedule.row(rank), int(schedule.offsets[rank])):
            if schedule.joined[index]:
                row[-1] = f"({row[-1]};{operation})OVERLAP_F_B"
            else:
                row.append(str(operation))
        found.append(row)
    return found


def without_opt(schedule: piper.Schedule) -> list[list[str]]:
    """The same without optimizer steps."""
    return [[cell for cell in row if not cell.endswith("OPT")] for row in rows(schedule)]


def facts(schedule: piper.Schedule) -> dict[str, Any]:
    """All that an order says: sizes, placement, stage graph, ties, slots; not the name, costs or parameters."""
    slots = [[schedule.slot[index], schedule.operation(index), schedule.rank[index]] for index in range(len(schedule))]
    return {
        "sizes": (schedule.ranks, schedule.stages, schedule.microbatches),
        "placement": schedule.placement.rank_of.tolist(),
        "edges": list(schedule.graph.edges),
        "ties": [tuple(tie) for tie in schedule.ties],
        "slots": slots,
    }


def expanded(text: str) -> piper.Schedule:
    """The schedule of a `.pipe` text."""
    return expand(parse(Source("t.pipe", text)))
