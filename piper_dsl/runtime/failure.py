"""What goes wrong while training, with its place: rank, stage, kind, microbatch."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from pathlib import Path

from ..diagnostics import Diagnostic
from ..ir.operations import Operation

__all__ = ["CodedError", "OperationFailed", "cannot_be_sent", "no_start", "place", "where_raised"]


class CodedError(Exception):
    """What an operation finds wrong that has a page of its own, under ``code``; ``help`` says what to do."""

    code = "P710"
    help: str | None = None


class OperationFailed(Exception):
    """An operation raised; ``trace`` are the places of its traceback where it ran, innermost last."""

    def __init__(
        self,
        rank: int,
        operation: Operation,
        error: str,
        trace: tuple[str, ...],
        code: str = CodedError.code,
        help: str | None = None,
    ) -> None:
        self.rank = rank
        self.operation = operation
        self.error = error
        self.trace = trace
        self.code = code
        self.help = help
        super().__init__(rank, operation, error, trace, code, help)

    @classmethod
    def wrap(cls, rank: int, operation: Operation, error: Exception) -> OperationFailed:
        """The failure of an operation, in values that cross process borders."""
        if isinstance(error, CodedError):
            return cls(rank, operation, str(error), (), error.code, error.help)
        return cls(rank, operation, f"{type(error).__name__}: {error}", where_raised(error))

    def __str__(self) -> str:
        return f"rank {self.rank}: {place(self.operation)}: {self.error}"

    def diagnostic(self) -> Diagnostic:
        """The failure as a finding, its traceback as notes."""
        return Diagnostic(self.code, str(self), None, self.help, notes=self.trace)


def no_start(rank: int, error: str, trace: tuple[str, ...]) -> Diagnostic:
    """A rank that could not be made, as a finding: its model or optimizer raised."""
    return Diagnostic("P701", f"rank {rank} could not start: {error}", notes=trace)


def place(operation: Operation) -> str:
    """An operation in words: ``stage 1, forward (F) of microbatch 2``."""
    microbatch = "" if operation.microbatch is None else f" of microbatch {operation.microbatch}"
    return f"stage {operation.stage}, {operation.kind.description} ({operation.kind.name}){microbatch}"


def cannot_be_sent(rank: int, stages: Iterable[int], error: BaseException) -> Diagnostic:
    """Modules, a loss, an optimizer or a loader that cannot be copied to where a rank runs."""
    why = next(iter(str(error).strip().splitlines()), type(error).__name__)
    message = f"rank {rank} (stages {', '.join(map(str, stages))}) cannot be sent to where it runs: {why}"
    help_ = "modules, loss, optimizer and loader are copied; make locks, files and the like where they are used"
    return Diagnostic("P701", message, None, help_)


def where_raised(error: BaseException) -> tuple[str, ...]:
    """The places an error came through, innermost last: ``file:line in function: code``, without this package."""
    own = str(Path(__file__).parents[1])
    frames = traceback.extract_tb(error.__traceback__)
    return tuple(
        f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in frames
        if not frame.filename.startswith(own) or "/demo/" in frame.filename
    )
