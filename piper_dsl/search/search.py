"""The search: list scheduling by a family of rules, local moves, an exact solver, and a part that repeats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from ..ir.costs import Costs
from ..ir.operations import BACKWARD
from ..ir.schedule import Schedule
from ..plan import Transport
from ..simulate import Timeline
from .answer import Found, as_schedule, measured
from .bounds import Bound, bound_of_operations, lower_bound, of_form
from .clock import Clock, OutOfTime
from .exact import LARGEST, available, solve_exactly
from .family import follow, members
from .known import Known, as_candidate, known_schedules, timeline_of
from .moves import improve
from .orders import Candidate, Orders
from .periodic import stretch
from .problem import Form, Problem, pose
from .room import one_at_a_time, with_room

__all__ = ["Progress", "search"]

_DIRECT = 1000
"""Jobs up to which all microbatches are searched for; beyond, few of them, and what repeats."""
_ELITE = 3
"""Orders of every form that local moves start from."""
_STEPS = 2_000_000
"""Moves that are tried from each, times the number of jobs: about a second."""
_FEWEST_STEPS, _MOST_STEPS = 500, 10_000
_FIRST_EFFORT, _LAST_EFFORT = 0.5, 1.5
"""What the exact solver may take before and after local moves, in its own deterministic seconds."""
_FINALISTS = 8
_SLACK = 1e-9


@dataclass(frozen=True)
class Progress:
    """A better order: after how many seconds, by which method, and what is measured of it."""

    seconds: float
    origin: str
    value: float


Watch = Callable[[Progress], None]


def search(
    template: Schedule,
    costs: Costs | None = None,
    *,
    memory_limit: float | Sequence[float] | None = None,
    transport: str = "buffered",
    measure: str = "makespan",
    backward: str = "any",
    seed: int = 0,
    time_limit: float = 60.0,
    watch: Watch | None = None,
) -> Found:
    """The best order that is found for the operations of a schedule, under costs and limits of memory.

    The template says sizes, placement, stage graph, and declared costs; its order is one to start from.
    ``memory_limit`` is for all ranks or one for each, in the unit of ``costs.memory``, and counted as by
    :func:`piper_dsl.check.check`. ``measure`` is ``makespan`` or ``span`` (the longest time from a rank's first
    operation to its last), ``backward`` is ``whole``, ``split`` or ``any``. What is found is never worse than
    a schedule of the library that fits. The same ``seed`` gives the same answer, unless ``time_limit``, in
    seconds, or an interrupt ends the search early. ``watch`` is told of every better order.

    Raises PipeError for limits that no order can meet (P602) and templates that cannot be searched for
    (P603), ValueError for other arguments that do not fit.
    """
    if not time_limit > 0:
        raise ValueError("the time limit must be more than 0 seconds")
    Transport.parse(transport)
    problem = pose(template, costs or Costs(), memory_limit, measure, transport, backward)
    return _Search(with_room(problem), seed, Clock(time_limit), watch or (lambda progress: None)).run()


class _Search:
    """Searches in a unit of time in which sums can be compared; what is given and handed back is as it was asked."""

    def __init__(self, given: Problem, seed: int, clock: Clock, watch: Watch) -> None:
        self._given = given
        self._problem = problem = given.in_unit(given.unit)
        self._seed = seed
        self._random = Random(seed)
        self._clock = clock
        self._watch = watch
        self._known = tuple(known for known in known_schedules(given) if self._takes(known))
        self._bound = lower_bound(given)
        self._bounds = {form: of_form(problem, form).value for form in problem.forms}
        self._finalists: list[Candidate] = []

    def run(self) -> Found:
        stopped = ""
        try:
            self._begin()
            self._improve()
        except OutOfTime:
            stopped = "time limit"
        except KeyboardInterrupt:
            stopped = "interrupt"
        return self._found(stopped)

    # --- the walk ------------------------------------------------------------------------------

    def _forms(self) -> list[Form]:
        return sorted(self._problem.forms, key=lambda form: self._bounds[form])

    def _begin(self) -> None:
        """The library's orders, and one that fits wherever any does."""
        for form in self._forms():
            orders = Orders(self._problem, form)
            self._keep(one_at_a_time(orders))
            for known in self._known:
                self._keep(as_candidate(known.schedule, orders, known.name))

    def _improve(self) -> None:
        for form in self._forms():
            if self._bounds[form] < self._least() - _SLACK:
                orders = Orders(self._problem, form)
                if len(orders.jobs) <= _DIRECT or self._problem.template.microbatches <= self._few():
                    self._directly(orders)
                else:
                    self._by_period(orders)

    def _few(self) -> int:
        """Microbatches that are enough for what repeats to show: the first is back well before the last enters."""
        return 2 * self._problem.template.ranks + 2

    def _directly(self, orders: Orders) -> None:
        """All microbatches at once: the family, the exact solver for a moment, local moves, the solver again."""
        form = orders.jobs.kinds
        elite = self._elite(orders, [one for one in self._finalists if one.form == form])
        self._keep(elite[0])
        self._exactly(orders, elite[0], _FIRST_EFFORT)
        best = elite[0]
        for start in elite:
            if self._least() > self._bounds[form] + _SLACK:
                moved = self._moved(orders, start, self._bounds[form], self._keep)
                best = min(best, moved, key=lambda one: one.times.rating)
        self._exactly(orders, best, _LAST_EFFORT)

    def _exactly(self, orders: Orders, best: Candidate, effort: float) -> None:
        form = orders.jobs.kinds
        if len(orders.jobs) > LARGEST or self._least() <= self._bounds[form] + _SLACK or not available():
            return
        left = self._clock.left
        found, self._bounds[form] = solve_exactly(orders, best, self._bounds[form], left, effort, self._seed)
        self._keep(found)
        self._clock.check()

    def _by_period(self, many: Orders) -> None:
        """Orders of few microbatches, each stretched to all as soon as it is found."""
        form = many.jobs.kinds
        few = Orders(self._problem.shortened(self._few()), form)
        trial = Orders(self._problem.shortened(self._few() + self._problem.template.ranks + 2), form)
        enough = of_form(few.problem, form).value
        known = (as_candidate(one.schedule, few, one.name) for one in known_schedules(few.problem))
        for start in self._elite(few, [one for one in known if one]):
            self._keep(stretch(start, few, many, trial))
            if self._least() > self._bounds[form] + _SLACK:
                moved = self._moved(few, start, enough, lambda better: None)
                self._keep(stretch(moved, few, many, trial))
            self._clock.check()

    def _elite(self, orders: Orders, starts: Sequence[Candidate]) -> list[Candidate]:
        """The best few, all of different ratings, of the family and ``starts``."""
        by_rating = {one.times.rating: one for one in reversed([*starts, one_at_a_time(orders)])}
        for member in members(orders.jobs):
            self._clock.check()
            candidate = follow(orders, member)
            if candidate is not None:
                by_rating.setdefault(candidate.times.rating, candidate)
        return [by_rating[rating] for rating in sorted(by_rating)][:_ELITE]

    def _moved(self, orders: Orders, start: Candidate, enough: float, watch: Callable[[Candidate], None]) -> Candidate:
        steps = min(_MOST_STEPS, max(_FEWEST_STEPS, _STEPS // len(orders.jobs)))
        return improve(orders, start, steps, self._random, enough, self._clock.check, watch)

    # --- what is kept --------------------------------------------------------------------------

    def _least(self) -> float:
        return min((one.times.value for one in self._finalists), default=float("inf"))

    def _keep(self, candidate: Candidate | None) -> None:
        """Of all that is found, the best few: under a transport another than the first may win."""
        if candidate is None:
            return
        better = candidate.times.value < self._least() - _SLACK
        others = [one for one in self._finalists if one.times.rating != candidate.times.rating]
        self._finalists = sorted([*others, candidate], key=lambda one: one.times.rating)[:_FINALISTS]
        if better:
            self._watch(Progress(self._clock.seconds, candidate.origin, candidate.times.value * self._given.unit))

    def _found(self, stopped: str) -> Found:
        seconds = self._clock.seconds
        given, buffered = self._given, self._given.transport == "buffered"
        schedules = [(as_schedule(given, one), one.origin) for one in self._finalists[: 1 if buffered else None]]
        choices = [(timeline_of(schedule, given), origin) for schedule, origin in schedules]
        choices += [(known.timeline, known.name) for known in self._known if known.fits]
        timeline, origin = min(choices, key=lambda choice: measured(choice[0], given.measure))
        value = measured(timeline, given.measure)
        return Found(
            given,
            timeline.schedule,
            timeline,
            value,
            self._proven_bound(timeline),
            origin,
            self._known,
            self._seed,
            seconds,
            stopped,
        )

    def _takes(self, known: Known) -> bool:
        """Whether a schedule of the library has only backwards that are tried; some have whole and split ones."""
        tried = {kind for form in self._problem.forms for kind in form}
        return set(known.schedule.kind.tolist()) & set(BACKWARD) <= tried

    def _proven_bound(self, timeline: Timeline) -> Bound:
        """The best bound for what was found: of one form, or of a mixture that beats all orders of one form."""
        proven = min(self._bounds.values()) * self._given.unit
        if measured(timeline, self._given.measure) < proven * (1 - _SLACK):
            return bound_of_operations(timeline, self._given.measure)
        if proven <= self._bound.value * (1 + _SLACK):
            return self._bound
        return replace(
            self._bound, value=proven, why=f"{self._bound.why}; the exact solver excludes all that is shorter"
        )
