"""Does every rank stay within its memory?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..diagnostics import Diagnostic
from ..ir.memory import ACTIVATIONS, Memory, live_memory
from ..ir.schedule import Schedule

__all__ = ["check_memory"]


def check_memory(schedule: Schedule, limit: float | Sequence[float], memory: Memory) -> list[Diagnostic]:
    """Finding P601 for every rank that exceeds its limit, at the first operation that does.

    ``limit`` is one number for all ranks, or one for each, in the unit of ``memory``. Raises ValueError for
    another count. A schedule with stages that do not exist is left to :mod:`.complete`.
    """
    limits = [limit] * schedule.ranks if isinstance(limit, int | float) else list(limit)
    if len(limits) != schedule.ranks:
        raise ValueError(f"{len(limits)} memory limits for {schedule.ranks} ranks")
    if np.isnan(limits).any():
        raise ValueError("a memory limit must be a number, not nan")
    if np.any((schedule.stage < 0) | (schedule.stage >= schedule.stages)):
        return []
    live = live_memory(schedule, memory)
    unit = " activations" if memory == ACTIVATIONS else ""
    findings = []
    for rank, allowed in enumerate(limits):
        own = slice(int(schedule.offsets[rank]), int(schedule.offsets[rank + 1]))
        over = np.flatnonzero(live[own] > allowed)
        if len(over):
            index = own.start + int(over[0])
            peak = live[own].max()
            message = f"rank {rank} holds {live[index]:.12g}{unit} here, more than its limit of {allowed:.12g}"
            help_ = f"its peak is {peak:.12g}: raise the limit, or run backwards earlier"
            span = schedule.origin.span(index)
            findings.append(Diagnostic("P601", message + schedule.where(index), span, help_))
    return findings
