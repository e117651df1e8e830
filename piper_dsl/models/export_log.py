"""What ``torch.export`` says while it works: pages that nobody should read, and the places where a size was fixed."""

from __future__ import annotations

import contextlib
import io
import logging
import traceback
from collections.abc import Iterator

from .errors import user_frames

__all__ = ["quiet_export"]

_SHAPES = "torch.fx.experimental.symbolic_shapes"


class _Guards(logging.Handler):
    """Remembers where the model's code made the traced graph depend on a size."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.places: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "[guard added]" in record.getMessage():
            self.places += user_frames(traceback.extract_stack())[-1:]


@contextlib.contextmanager
def quiet_export() -> Iterator[list[str]]:
    """Keeps export from printing; the list fills with the places where sizes were compared, first to last."""
    shapes, guards = logging.getLogger(_SHAPES), _Guards()
    before = (shapes.handlers, shapes.level, shapes.propagate)
    shapes.handlers, shapes.propagate = [guards], False
    shapes.setLevel(logging.INFO)
    unread = io.StringIO()
    try:
        with contextlib.redirect_stdout(unread), contextlib.redirect_stderr(unread):
            yield guards.places
    finally:
        shapes.handlers, shapes.propagate = before[0], before[2]
        shapes.setLevel(before[1])
