"""How many tensors a stage takes, said of stages where Python speaks of arguments."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from torch import nn

__all__ = ["wrong_count"]


def wrong_count(module: nn.Module, count: int, sources: Sequence[int]) -> str | None:
    """That a forward does not take ``count`` tensors, those of the stages ``sources``; None where it may take them."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        # What is not written in Python may not say what it takes.
        return None
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    least = sum(p.default is p.empty for p in places)
    most = None if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(places)
    if least <= count and (most is None or count <= most):
        return None
    taken = f"{least}" if most == least else f"{least} or more" if most is None else f"{least} to {most}"
    names = ", ".join(p.name for p in places)
    return f"its forward takes {taken} tensors ({names}), but {_giver(sources)} {count}"


def _giver(sources: Sequence[int]) -> str:
    if not sources:
        return "the batch has"
    return f"stage{'s' if len(sources) > 1 else ''} {', '.join(map(str, sources))} returned"
