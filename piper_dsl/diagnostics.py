"""Findings as values: a place in a text, a code, a message, a way out.

Checks return tuples of :class:`Diagnostic`; only the outermost layer prints them or raises
:class:`PipeError`. Codes are stable and listed in :mod:`piper_dsl.codes`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

__all__ = ["Diagnostic", "PipeError", "Related", "Severity", "Source", "Span", "in_source_order"]


class Severity(str, Enum):
    """How bad a finding is; only errors make a schedule unusable."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Source:
    """A text and the name it is reported under."""

    name: str
    text: str = field(repr=False)

    @classmethod
    def decoded(cls, name: str, data: bytes) -> Source:
        """The text of a file, without a mark of its byte order. Raises :class:`PipeError` (P001) unless it is UTF-8."""
        try:
            return cls(name, data.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            message = f"{name} is not UTF-8 text: byte {error.start} is {data[error.start]:#04x}"
            raise PipeError(Diagnostic("P001", message)) from error

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        starts.extend(i + 1 for i, char in enumerate(self.text) if char == "\n")
        return starts

    def position(self, offset: int) -> tuple[int, int]:
        """The (line, column) of a character offset, both counted from 1."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a line counted from 1, without its newline."""
        start = self._line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start : end if end >= 0 else len(self.text)].rstrip("\r")


@dataclass(frozen=True)
class Span:
    """The characters ``start`` (included) to ``end`` (excluded) of a source."""

    source: Source
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    @property
    def line(self) -> int:
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.position(self.start)[1]

    @property
    def end_line(self) -> int:
        return self.source.position(self.end)[0]

    @property
    def end_column(self) -> int:
        """One past the last column of the span, on :attr:`end_line`."""
        return self.source.position(self.end)[1]

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Related:
    """Another place that belongs to a finding, with what it contributes."""

    message: str
    span: Span


@dataclass(frozen=True)
class Diagnostic:
    """One finding.

    ``span`` is None for findings about something that has no text, such as a flag. ``label`` is
    what stands beside the carets; ``notes`` are further lines below the source excerpt.
    """

    code: str
    message: str
    span: Span | None = None
    help: str | None = None
    label: str = ""
    related: tuple[Related, ...] = ()
    notes: tuple[str, ...] = ()
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        place = f"{self.span}: " if self.span else ""
        return f"{place}{self.severity.value}[{self.code}]: {self.message}"


class PipeError(Exception):
    """One or more findings that stop what was asked for; ``diagnostics`` holds them all."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        self.diagnostics = diagnostics
        super().__init__("\n".join(self._lines()))

    def _lines(self) -> Iterable[str]:
        for finding in self.diagnostics:
            yield str(finding)
            if finding.help:
                yield f"  help: {finding.help}"

    def __reduce__(self) -> tuple[type[PipeError], tuple[Diagnostic, ...]]:
        return type(self), self.diagnostics


def in_source_order(findings: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The findings sorted by place; those without a place come first, otherwise stable."""
    return tuple(sorted(findings, key=lambda d: (d.span.start, d.span.end) if d.span else (-1, -1)))
