"""When messages go from rank to rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..ir.costs import Costs
from ..ir.schedule import Schedule
from ..plan.transfers import find_transfers

__all__ = ["Moves", "prompt_moves"]


@dataclass(frozen=True, eq=False)
class Moves:
    """Messages as arrays of one entry each: ``producer`` and ``consumer`` are operations (int64), ``start``
    and ``end`` the times between which the message is on its way (float64)."""

    producer: np.ndarray
    consumer: np.ndarray
    start: np.ndarray
    end: np.ndarray


def prompt_moves(schedule: Schedule, end: np.ndarray, costs: Costs) -> Moves:
    """The messages of a schedule, each leaving when its producer ends (``end``, by operation)."""
    transfers = find_transfers(schedule)
    start = end[transfers.producer]
    return Moves(transfers.producer, transfers.consumer, start, start + transfers.times(costs))
