"""What ranks hold over the time of a timeline."""

from __future__ import annotations

import numpy as np

from ..ir.memory import Memory, activation_changes
from ..ir.operations import Kind
from ..ir.schedule import Schedule
from .moves import Moves

__all__ = ["memory_curve", "waiting_outputs"]


def waiting_outputs(schedule: Schedule, start: np.ndarray, end: np.ndarray, moves: Moves, memory: Memory) -> np.ndarray:
    """What is held, while each operation starts, of outputs of earlier ones whose SEND has not ended; float64."""
    producer, sent, size = _outputs(schedule, moves, memory)
    held = np.zeros(len(schedule))
    if memory.keeps_sent:
        return held
    for rank in range(schedule.ranks):
        own = slice(int(schedule.offsets[rank]), int(schedule.offsets[rank + 1]))
        mine = schedule.rank[producer] == rank
        made, gone = end[producer[mine]], sent[mine]
        held[own] = _total_until(start[own], made, size[mine]) - _total_until(start[own], gone, size[mine])
    return np.asarray(np.round(held, 9))


def memory_curve(
    schedule: Schedule, rank: int, start: np.ndarray, end: np.ndarray, moves: Moves | None, memory: Memory
) -> tuple[np.ndarray, np.ndarray]:
    """Times and what the rank holds from each on, after all that happens at it; without ``moves``, no outputs."""
    own = slice(int(schedule.offsets[rank]), int(schedule.offsets[rank + 1]))
    changes = activation_changes(schedule, memory)
    taken, freed, passing = changes.taken[own], changes.freed[own], changes.passing[own]
    times, amounts = [start[own], end[own]], [taken + passing, -(freed + passing)]
    if moves is not None:
        producer, sent, size = _outputs(schedule, moves, memory)
        mine = schedule.rank[producer] == rank
        times += [start[producer[mine]]] + [sent[mine]] * (not memory.keeps_sent)
        amounts += [size[mine]] + [-size[mine]] * (not memory.keeps_sent)
    at, which = np.unique(np.concatenate([[0.0], *times]), return_inverse=True)
    standing = memory.standing(schedule)[rank]
    held = np.cumsum(np.bincount(which, np.concatenate([[standing], *amounts]), len(at)))
    return at, np.asarray(np.round(held, 9))


def _outputs(schedule: Schedule, moves: Moves, memory: Memory) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every output once: its producer, when the last SEND of it ends, and its size."""
    gradient = schedule.kind[moves.producer] != Kind.F
    stage = np.where(gradient, schedule.stage[moves.consumer], schedule.stage[moves.producer])
    key, which = np.unique(moves.producer * schedule.stages + stage, return_inverse=True)
    sent = np.zeros(len(key))
    np.maximum.at(sent, which, moves.end)
    producer, output = np.divmod(key, schedule.stages)
    return producer, sent, memory.of("output", schedule.stages)[output]


def _total_until(times: np.ndarray, at: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    """By time, the sum of the amounts that come at it or before."""
    order = np.argsort(at, kind="stable")
    total = np.append(0.0, np.cumsum(amounts[order]))
    return np.asarray(total[np.searchsorted(at[order], times, side="right")])
