"""What goes wrong while training, with its place: rank, stage, kind, microbatch."""

from __future__ import annotations

import traceback

from ..diagnostics import Diagnostic
from ..ir.operations import Operation

__all__ = ["OperationFailed"]


class OperationFailed(Exception):
    """An operation raised; ``trace`` is the text of its traceback where it ran."""

    def __init__(self, rank: int, operation: Operation, error: str, trace: str) -> None:
        self.rank = rank
        self.operation = operation
        self.error = error
        self.trace = trace
        super().__init__(rank, operation, error, trace)

    @classmethod
    def wrap(cls, rank: int, operation: Operation, error: Exception) -> OperationFailed:
        """The failure of an operation, in values that cross process borders."""
        trace = "".join(traceback.format_exception(error))
        return cls(rank, operation, f"{type(error).__name__}: {error}", trace)

    def __str__(self) -> str:
        return f"rank {self.rank}: {place(self.operation)}: {self.error}"

    def diagnostic(self) -> Diagnostic:
        """The failure as a finding, its traceback as notes."""
        return Diagnostic("P710", str(self), notes=tuple(self.trace.rstrip().splitlines()))


def place(operation: Operation) -> str:
    """An operation in words: ``stage 1, forward (F) of microbatch 2``."""
    microbatch = "" if operation.microbatch is None else f" of microbatch {operation.microbatch}"
    return f"stage {operation.stage}, {operation.kind.description} ({operation.kind.name}){microbatch}"
