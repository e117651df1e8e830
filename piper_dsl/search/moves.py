"""Local moves: a job goes to another place of its row, as long as that is better, or not much worse.

Simulated annealing (Kirkpatrick et al., Science 220, 1983) over insertions, mostly of jobs of the critical
path, as Dell'Amico and Trubian move them for the job shop (Annals of Operations Research 41, 1993).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from random import Random

from .orders import Candidate, Orders, Times

__all__ = ["improve"]

_REACH = 8
"""Places that a job moves at most."""
_ON_PATH = 0.8
"""How often a job of the critical path is moved rather than any."""
_HOT, _COLD = 0.2, 0.02
"""Temperatures at the begin and at the end, in average durations."""
_SUM_WEIGHT = 0.05
"""What a change of the average end counts, beside that of the measured value."""
_SLACK = 1e-9


def improve(
    orders: Orders,
    start: Candidate,
    steps: int,
    random: Random,
    enough: float,
    tick: Callable[[], None],
    watch: Callable[[Candidate], None],
) -> Candidate:
    """The best order found in so many steps from one, no worse than it.

    Ends early where the value is ``enough``. ``tick`` is called before every step, and may end it all by
    raising; ``watch`` is told of every better order.
    """
    annealing = _Annealing(orders, start, random)
    average = sum(orders.jobs.duration) / len(orders.jobs)
    for step in range(steps):
        if annealing.best.times.value <= enough:
            break
        tick()
        heat = average * (_COLD + (_HOT - _COLD) * (1 - step / steps) ** 2)
        if annealing.step(max(heat, _SLACK)):
            watch(annealing.best)
    return annealing.best


class _Annealing:
    def __init__(self, orders: Orders, start: Candidate, random: Random) -> None:
        self.best = start
        self._orders = orders
        self._random = random
        self._rows: list[list[int]] = [list(row) for row in start.rows]
        self._times = start.times
        self._path = self._critical_path()

    def step(self, heat: float) -> bool:
        """Tries one move; whether it led to a new best."""
        rank, job = self._pick()
        old = self._rows[rank]
        new = self._moved(old, job)
        if new is None or not self._orders.fits(rank, new):
            return False
        self._rows[rank] = new
        times = self._orders.times(self._rows)
        if times is None or not self._accepts(times, heat):
            self._rows[rank] = old
            return False
        self._times = times
        self._path = self._critical_path()
        if times.rating >= self.best.times.rating:
            return False
        self.best = Candidate(self.best.form, tuple(map(tuple, self._rows)), times, "local moves")
        return True

    def _pick(self) -> tuple[int, int]:
        """A job to move, and its rank."""
        on_path = self._random.random() < _ON_PATH
        job = self._random.choice(self._path) if on_path else self._random.randrange(len(self._orders.jobs))
        return self._orders.jobs.rank[job], job

    def _moved(self, row: list[int], job: int) -> list[int] | None:
        """The row with a job some places earlier or later, as far as its needs allow; None where it stays."""
        at, reach = row.index(job), self._random.randint(1, _REACH)
        if self._random.random() < 0.5:
            way, stops = range(at - 1, max(-1, at - 1 - reach), -1), self._orders.before[job]
        else:
            way, stops = range(at + 1, min(len(row), at + 1 + reach)), self._orders.behind[job]
        to = at
        for place in way:
            if row[place] in stops:
                break
            to = place
        if to == at:
            return None
        moved = row.copy()
        moved.insert(to, moved.pop(at))
        return moved

    def _accepts(self, times: Times, heat: float) -> bool:
        (value, total), (old_value, old_total) = times.rating, self._times.rating
        worse = value - old_value + _SUM_WEIGHT * (total - old_total) / len(self._rows)
        return worse <= 0 or self._random.random() < math.exp(-worse / heat)

    def _critical_path(self) -> list[int]:
        """A chain of jobs that decides what is measured, each starting as soon as the one before lets it."""
        start = self._times.start
        ahead = {later: earlier for row in self._rows for earlier, later in pairwise(row)}
        used = [rank for rank, row in enumerate(self._rows) if row]
        begin = [start[row[0]] if row and self._orders.by_span else 0.0 for row in self._rows]
        job = self._rows[max(used, key=lambda rank: self._times.ends[rank] - begin[rank])][-1]
        path = [job]
        while (job := self._cause(job, ahead)) >= 0:
            path.append(job)
        return path

    def _cause(self, job: int, ahead: dict[int, int]) -> int:
        """What a job waited for: a need from elsewhere, or what its rank ran before; -1 for nothing."""
        start, jobs = self._times.start, self._orders.jobs
        for other in (*jobs.needs[job], ahead.get(job, -1)):
            if other >= 0:
                arrived = start[other] + jobs.duration[other] + jobs.delay(other, job)
                if arrived >= start[job] - _SLACK:
                    return other
        return -1
