"""Few microbatches to many: a part of every row that repeats, found in the middle of a short order.

The idea is Tessel's (Lin et al., arXiv 2311.15269): search for what repeats, and for what comes before and
after, not for all microbatches at once. Here all three come out of one order of few microbatches. A
window of a row that holds one operation of every kind and stage may be repeated, each time with
every microbatch one up, and what follows moved on: microbatches stay in order, and since the window frees
what it takes, the peak stays as it is. Which windows of the ranks go together is found by trial.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..expand.jobs import Jobs
from .orders import Candidate, Orders, Rows

__all__ = ["stretch"]

_ROUNDS = 2
"""How often the window of every rank is chosen anew, the others standing."""


def stretch(short: Candidate, few: Orders, many: Orders, trial: Orders) -> Candidate | None:
    """The order of ``few`` microbatches for ``many``, with windows that are the best for ``trial``.

    ``trial`` has some microbatches more than ``few``, so that choosing does not depend on how many there
    are in the end. None where a rank has no window, or none of them go together.
    """
    starts = [_windows(few.jobs, row) for row in short.rows]
    if not all(starts):
        return None
    windows = _Windows(short.rows, few.jobs)
    chosen = [_nearest_middle(short, row, choices) for row, choices in zip(short.rows, starts, strict=True)]
    best = _rating(windows, chosen, trial)
    for _ in range(_ROUNDS):
        for rank, choices in enumerate(starts):
            for start in choices:
                other = [*chosen[:rank], start, *chosen[rank + 1 :]]
                rating = _rating(windows, other, trial)
                if rating < best:
                    best, chosen = rating, other
    return many.candidate(windows.repeated(chosen, many.jobs), "periodic search")


def _rating(windows: _Windows, chosen: Sequence[int], trial: Orders) -> tuple[float, float]:
    times = trial.times(windows.repeated(chosen, trial.jobs))
    return times.rating if times else (float("inf"), 0.0)


def _windows(jobs: Jobs, row: Sequence[int]) -> list[int]:
    """Where windows start: so many places on, every kind and stage of the rank has occurred once."""
    size = len({job // jobs.microbatches for job in row})
    parts = [job // jobs.microbatches for job in row]
    return [at for at in range(len(row) - size + 1) if len(set(parts[at : at + size])) == size]


def _nearest_middle(short: Candidate, row: Sequence[int], choices: Sequence[int]) -> int:
    """The window that starts nearest to the middle of the order's time."""
    middle = max(short.times.ends) / 2
    return min(choices, key=lambda at: abs(short.times.start[row[at]] - middle)) if row else 0


class _Windows:
    """The rows of an order of few microbatches, with windows to be repeated."""

    def __init__(self, rows: Rows, jobs: Jobs) -> None:
        self._rows = rows
        self._few = jobs.microbatches
        self._sizes = [len({job // jobs.microbatches for job in row}) for row in rows]

    def repeated(self, chosen: Sequence[int], jobs: Jobs) -> list[list[int]]:
        """The rows for as many microbatches as ``jobs`` has, every window repeated as often as that takes."""
        more = jobs.microbatches - self._few
        return [
            [
                *self._renumbered(row[: at + size], jobs, 0),
                *(job for k in range(1, more + 1) for job in self._renumbered(row[at : at + size], jobs, k)),
                *self._renumbered(row[at + size :], jobs, more),
            ]
            for row, at, size in zip(self._rows, chosen, self._sizes, strict=True)
        ]

    def _renumbered(self, row: Sequence[int], jobs: Jobs, up: int) -> list[int]:
        few, many = self._few, jobs.microbatches
        return [job // few * many + job % few + up for job in row]
