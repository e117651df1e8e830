"""Whether a pipeline can go on: it may be closed, its ranks gone, or out of step with each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..diagnostics import Diagnostic, PipeError

__all__ = ["Condition"]

_GONE = ("P711", "P713")
"""Codes of what ends ranks: the watchdog, and a death."""


class Condition:
    """Of one pipeline: whether it is ``closed``, and why it has ``stopped``; None where it has not."""

    def __init__(self) -> None:
        self.closed = False
        self.stopped: str | None = None

    def refuse_if_closed(self) -> None:
        """Raises PipeError (P712) where there is nobody left to ask."""
        if self.closed:
            raise PipeError(Diagnostic("P712", "the pipeline is closed", None, "ask inside its `with` block"))

    def refuse_if_over(self) -> None:
        """Raises PipeError (P712) also where ranks are left, but are not what they should be."""
        self.refuse_if_closed()
        if self.stopped:
            raise PipeError(Diagnostic("P712", f"the pipeline stopped: {self.stopped}", None, "make a new one"))

    @contextmanager
    def asking(self) -> Iterator[None]:
        """What ranks are asked between steps. Where one is gone and is not replaced, the pipeline stops."""
        try:
            yield
        except PipeError as error:
            gone = [finding.message for finding in error.diagnostics if finding.code in _GONE]
            self.stopped = gone[0] if gone else self.stopped
            raise

    @contextmanager
    def whole(self, torn: str) -> Iterator[None]:
        """What all ranks do, or the pipeline stops, with what was wrong, or that it was ``torn``."""
        try:
            yield
        except PipeError as error:
            self.stopped = error.diagnostics[0].message
            raise
        except BaseException:
            self.stopped = torn
            raise
