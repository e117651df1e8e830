"""Lower bounds on the makespan that hold for every order of the operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..ir.operations import PER_MICROBATCH, Kind
from ..ir.schedule import Schedule

__all__ = ["Bounds", "find_bounds"]


@dataclass(frozen=True)
class Bounds:
    """Neither can be beaten by reordering.

    ``busiest_rank``: the work of a rank, after the shortest chain that leads to any of its operations
    and before the shortest that follows all of them. ``chain``: the longest chain of one microbatch.
    """

    busiest_rank: float
    chain: float


def find_bounds(schedule: Schedule, durations: np.ndarray, alone: np.ndarray, transfer_times: np.ndarray) -> Bounds:
    """The bounds of a schedule whose operation ``i`` takes ``durations[i]`` (that of its slot).

    ``alone[i]`` is what it would take outside an overlapped slot; ``transfer_times[s]`` is what passes until
    the output of stage ``s``, or the gradient of it, has arrived. Linear in the operations: chains go over
    stages, with all microbatches at once.
    """
    chains = _Chains(schedule, np.minimum(durations, alone), transfer_times)
    first = ~schedule.joined
    busy = np.bincount(schedule.rank[first], durations[first], schedule.ranks)
    of_stage = first & ~np.isin(schedule.kind, PER_MICROBATCH)
    compute = busy - np.bincount(schedule.rank[of_stage], durations[of_stage], schedule.ranks)
    busiest = 0.0
    for rank in range(schedule.ranks):
        mine = schedule.placement.rank_of == rank
        if mine.any():
            # What concerns a stage as a whole may run before anything has arrived, and after all else.
            work = chains.before[mine].min() + compute[rank] + chains.after[mine].min()
            busiest = max(busiest, float(busy[rank]), float(work))
    return Bounds(busiest, float(chains.whole.max(initial=0.0)))


class _Chains:
    """Longest chains of needs, for every (stage, microbatch); float64 arrays of that shape.

    ``before`` ends where the forward starts, ``after`` starts where the last operation ends, ``whole``
    leads through both.
    """

    def __init__(self, schedule: Schedule, durations: np.ndarray, transfer_times: np.ndarray) -> None:
        at = schedule.positions
        # Index -1, for what the schedule does not have, finds the zero that is appended.
        durations = np.append(durations, 0.0)
        spent = {kind: durations[at[kind]] for kind in at}
        forward, recompute, weight = spent[Kind.F], spent[Kind.R], spent[Kind.W]
        backward = np.where(at[Kind.I] >= 0, spent[Kind.I], spent[Kind.B])
        hop = _hop(schedule, transfer_times)
        graph = schedule.graph
        downwards = (graph.topological, graph.predecessors)
        upwards = (graph.topological[::-1], graph.successors)

        self.before = _longest(*downwards, forward, np.zeros_like(forward), hop)
        forward_done = self.before + forward
        backward_starts = _longest(*upwards, backward, forward_done + recompute, hop)
        self.whole = backward_starts + backward + weight
        # What must follow the last of a microbatch's operations: nothing after a weight gradient.
        after_forward = _longest(*upwards, forward, np.zeros_like(forward), hop)
        after_backward = _longest(*downwards, backward, np.zeros_like(backward), hop)
        trained = (at[Kind.B] >= 0) | (at[Kind.I] >= 0)
        self.after = np.where(at[Kind.W] >= 0, 0.0, np.where(trained, after_backward, after_forward))


def _longest(
    order: tuple[int, ...],
    sources: tuple[tuple[int, ...], ...],
    spent: np.ndarray,
    floor: np.ndarray,
    hop: Callable[[int, int], np.ndarray],
) -> np.ndarray:
    """Per (stage, microbatch), the later of ``floor`` and the ends of the chains through its sources."""
    start: np.ndarray = floor.copy()
    for stage in order:
        for source in sources[stage]:
            start[stage] = np.maximum(start[stage], start[source] + spent[source] + hop(source, stage))
    return start


def _hop(schedule: Schedule, transfer_times: np.ndarray) -> Callable[[int, int], np.ndarray]:
    """What passes between two stages, of which one reads the other: the output is that of the other."""
    rank_of, reads = schedule.placement.rank_of, set(schedule.graph.edges)

    def hop(source: int, target: int) -> np.ndarray:
        time = transfer_times[source if (source, target) in reads else target]
        return np.asarray(np.where(rank_of[source] != rank_of[target], time, 0.0))

    return hop
