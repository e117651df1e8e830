"""What the tests of the search share: problems, and every order of a tiny one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product

import piper_dsl as piper
from piper_dsl.expand import expand
from piper_dsl.ir.memory import ACTIVATIONS
from piper_dsl.search import Found
from piper_dsl.syntax import parse

HALF = replace(ACTIVATIONS, released_at_input=0.5)
"""F holds 2 halves; I and W free one each."""


def assert_sound(found: Found) -> None:
    """It checks, within its limits, and is neither better than its bound nor worse than the library."""
    problem = found.problem
    assert piper.check(found.schedule, problem.transport, problem.limits, problem.costs.memory) == ()
    assert found.value >= found.bound.value - 1e-6
    allowed = {kind for form in problem.forms for kind in form}
    for known in found.known:
        if known.fits and kinds_of(known.schedule) <= allowed:
            assert found.value <= value_of(known.timeline, problem.measure) + 1e-6, known.name


def kinds_of(schedule: piper.Schedule) -> set[piper.Kind]:
    every = (piper.Kind.F, piper.Kind.B, piper.Kind.I, piper.Kind.W)
    return {kind for kind in every if (schedule.kind == kind).any()}


def value_of(timeline: piper.Timeline, measure: str) -> float:
    if measure == "makespan":
        return timeline.makespan
    return max(rank.end - rank.start for rank in timeline.ranks)


def every_order(queues: Sequence[Sequence[str]], needs: dict[str, tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Every interleaving of queues in which what an item needs of the same rank comes before it."""
    if not any(queues):
        yield ()
    left = {item for queue in queues for item in queue}
    for at, queue in enumerate(queues):
        if queue and not left & set(needs.get(queue[0], ())):
            for rest in every_order([*queues[:at], queue[1:], *queues[at + 1 :]], needs):
                yield (queue[0], *rest)


def every_schedule(p: int, m: int, last: Sequence[str]) -> Iterator[piper.Schedule]:
    """Every schedule of one stage a rank whose microbatches run in order, with B or with I and W."""
    kinds = ("F", *last)
    orders = []
    for s in range(p):
        queues = [[f"{s}{kind}{i}" for i in range(m)] for kind in kinds]
        needs = {f"{s}{b}{i}": (f"{s}{a}{i}",) for a, b in pairwise(kinds) for i in range(m)}
        orders.append([" ".join(order) for order in every_order(queues, needs)])
    for rows in product(*orders):
        bodies = "".join(f"rank {rank}: {row} {rank}OPT\n" for rank, row in enumerate(rows))
        yield expand(parse(piper.Source("t.pipe", f"ranks {p}\nmicrobatches {m}\n{bodies}")))
