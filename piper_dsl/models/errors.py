"""What is said where a model cannot be cut."""

from __future__ import annotations

import logging
import re
import traceback
from pathlib import Path

import torch

from ..diagnostics import Diagnostic, PipeError

__all__ = ["LIST_INSTEAD", "first_line", "refusal", "user_frames", "user_places", "written_at"]

LIST_INSTEAD = "or cut the model by hand: pass a list of stage modules"
_FOREIGN = (*(str(Path(file).parent) for file in (torch.__file__, logging.__file__, __file__)), "<")
_FILLER = ("Constraints violated", "Suggested fixes", "For more information")
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)\n\s*(?P<code>[^\n]*)')


def refusal(message: str, help: str | None = None, notes: tuple[str, ...] = ()) -> PipeError:
    """The error of a model that cannot be cut."""
    return PipeError(Diagnostic("P704", message, None, help, notes=notes))


def user_places(error: BaseException) -> tuple[str, ...]:
    """The places of the user's code that an error came through, innermost last; the last three."""
    return tuple(user_frames(traceback.extract_tb(error.__traceback__))[-3:])


def user_frames(stack: traceback.StackSummary) -> list[str]:
    """The frames of a stack that are neither PyTorch's nor this room's, in words."""
    frames = [frame for frame in stack if not frame.filename.startswith(_FOREIGN)]
    return [f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames]


def written_at(stack: str | None) -> tuple[str, ...]:
    """The innermost place of the user's code in the stack that a traced node remembers."""
    found = [m for m in _FRAME.finditer(stack or "") if not m["file"].startswith(_FOREIGN)]
    return tuple(f"{m['file']}:{m['line']} in {m['function']}: {m['code'].strip()}" for m in found[-1:])


def first_line(error: BaseException) -> str:
    """The first line of an error's text that says something: torch.export goes on with advice for its caller."""
    lines = (line.strip(" -").split(". If you")[0] for line in str(error).splitlines())
    return next((line for line in lines if line and not line.startswith(_FILLER)), type(error).__name__)
