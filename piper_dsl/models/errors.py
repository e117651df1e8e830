"""What is said where a model cannot be cut."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import torch

from ..diagnostics import Diagnostic, PipeError

__all__ = ["LIST_INSTEAD", "first_lines", "refusal", "user_places", "written_at"]

LIST_INSTEAD = "or cut the model by hand: pass a list of stage modules"
_FOREIGN = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]) + "/models", "<")
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)\n\s*(?P<code>[^\n]*)')


def refusal(message: str, help: str | None = None, notes: tuple[str, ...] = ()) -> PipeError:
    """The error of a model that cannot be cut."""
    return PipeError(Diagnostic("P704", message, None, help, notes=notes))


def user_places(error: BaseException) -> tuple[str, ...]:
    """The places of the user's code that an error came through, innermost last; the last three."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_FOREIGN)]
    return tuple(f"{f.filename}:{f.lineno} in {f.name}: {f.line}" for f in frames[-3:] if f.name != "split_model")


def written_at(stack: str | None) -> tuple[str, ...]:
    """The innermost place of the user's code in the stack that a traced node remembers."""
    found = [m for m in _FRAME.finditer(stack or "") if not m["file"].startswith(_FOREIGN)]
    return tuple(f"{m['file']}:{m['line']} in {m['function']}: {m['code'].strip()}" for m in found[-1:])


def first_lines(error: BaseException, count: int = 2) -> str:
    """The first lines of an error's text: torch.export's go on for pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:count]) or type(error).__name__
