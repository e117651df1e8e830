"""Findings as a person reads them (the source line with carets) and as programs do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from ..diagnostics import Diagnostic, Severity, Span

__all__ = ["as_json", "as_text"]

_COLOURS = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow"}
_WIDTH = 100
"""Source lines are cut to this many characters around what is pointed at."""
_MAX_NOTES = 30


@dataclass(frozen=True)
class _Label:
    span: Span
    text: str
    style: str


def as_json(finding: Diagnostic) -> dict[str, Any]:
    """A finding with its places as file, line and column, all counted from 1."""
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "message": finding.message,
        **_place(finding.span),
        "help": finding.help,
        "related": [{"message": r.message, **_start(r.span)} for r in finding.related],
    }


def _start(span: Span | None) -> dict[str, Any]:
    if span is None:
        return {"file": None, "line": None, "column": None}
    return {"file": span.source.name, "line": span.line, "column": span.column}


def _place(span: Span | None) -> dict[str, Any]:
    end = {"end_line": span.end_line, "end_column": span.end_column} if span else {"end_line": None, "end_column": None}
    return {**_start(span), **end}


def as_text(finding: Diagnostic) -> Text:
    """A finding with an excerpt of its source, in the manner of rustc."""
    style = _COLOURS[finding.severity]
    text = Text.assemble((f"{finding.severity.value}[{finding.code}]", style), (f": {finding.message}\n", "bold"))
    labels = _labels(finding, style)
    gutter = max((len(str(label.span.line)) for label in labels), default=1)
    if finding.span:
        text.append(f"{' ' * gutter} ┌─ {finding.span}\n", "blue")
    for line, group in _by_line(labels):
        _excerpt(text, line, group, gutter)
    notes = finding.notes
    if len(notes) > _MAX_NOTES:
        notes = (f"… {len(notes) - _MAX_NOTES} lines left out", *notes[-_MAX_NOTES:])
    for note in notes:
        text.append(f"{' ' * gutter} = ", "blue").append(f"{note}\n")
    if finding.help:
        text.append(f"{' ' * gutter} = ", "blue").append("help", "bold").append(f": {finding.help}\n")
    return text


def _labels(finding: Diagnostic, style: str) -> list[_Label]:
    own = [_Label(finding.span, finding.label, style)] if finding.span else []
    return own + [_Label(related.span, related.message, "blue") for related in finding.related]


def _by_line(labels: Iterable[_Label]) -> list[tuple[int, list[_Label]]]:
    lines: dict[int, list[_Label]] = {}
    for label in sorted(labels, key=lambda one: one.span.start):
        lines.setdefault(label.span.line, []).append(label)
    return sorted(lines.items())


def _excerpt(text: Text, line: int, labels: list[_Label], gutter: int) -> None:
    source = labels[0].span.source.line(line).replace("\t", " ")
    first = labels[0].span.column - 1
    offset = 0 if len(source) <= _WIDTH or first < _WIDTH * 3 // 4 else first - _WIDTH // 2
    shown = source[offset : offset + _WIDTH]
    before, after = "…" if offset else "", "…" if offset + _WIDTH < len(source) else ""
    text.append(f"{line:>{gutter}} │ ", "blue").append(f"{before}{shown}{after}\n")
    for label in labels:
        start = label.span.column - 1 - offset
        if not 0 <= start <= _WIDTH:
            text.append(f"{' ' * gutter} │ ", "blue").append(f"column {label.span.column}: {label.text}\n", label.style)
            continue
        end = label.span.end_column - 1 - offset if label.span.end_line == line else len(shown)
        carets = "^" * max(1, min(end, len(shown)) - start)
        text.append(f"{' ' * gutter} │ ", "blue").append(" " * (start + len(before)))
        text.append(f"{carets} {label.text}".rstrip() + "\n", label.style)
