"""Values that are one for all stages, or one for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["DoesNotFit", "by_stage"]


class DoesNotFit(ValueError):
    """Costs or sizes for another number of stages than the schedule has."""


def by_stage(what: str, value: float | Sequence[float], stages: int) -> np.ndarray:
    """A value by stage; float64. Raises :class:`DoesNotFit` where a list has not one entry a stage."""
    if isinstance(value, Sequence) and len(value) != stages:
        raise DoesNotFit(f"{len(value)} {what} for {stages} stages")
    return np.broadcast_to(np.asarray(value, dtype=np.float64), stages)
