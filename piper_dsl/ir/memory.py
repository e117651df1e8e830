"""How much a rank holds while it runs each of its operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from .operations import BACKWARD, COMPUTE, Kind
from .schedule import Schedule
from .stage_values import by_stage

__all__ = ["ACTIVATIONS", "MOST", "SIZES", "Memory", "Messages", "activation_changes", "find_messages", "live_memory"]

MOST = 1e100
"""No size and no cost is larger, in whatever unit: sums would be infinite."""

Size = float | Sequence[float]


@dataclass(frozen=True)
class Memory:
    """What things take, in any one unit: one number for all stages, or one for each.

    The default counts activations. ``activation``: what one microbatch of a stage keeps from its forward to
    its backward; ``input``: what of it a stage keeps that recomputes the rest; ``output``: what a stage
    sends on, and the gradient of it; ``parameters``, ``gradients`` and ``optimizer``: what a stage holds
    all the time. ``released_at_input`` is the part of an activation, from 0 to 1, that a split backward
    frees at I already, the rest at W. A sent output is freed when its SEND ends, or, with ``keeps_sent``,
    at the end of the step.

    Raises ValueError for sizes that are negative, not finite or beyond 1e100, and for a part outside 0 to 1.
    """

    activation: Size = 1.0
    input: Size = 0.0
    output: Size = 0.0
    parameters: Size = 0.0
    gradients: Size = 0.0
    optimizer: Size = 0.0
    released_at_input: float = 0.0
    keeps_sent: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            size = np.asarray(getattr(self, field.name), dtype=np.float64)
            if not np.all(np.isfinite(size)) or np.any(size < 0):
                raise ValueError(f"the memory of {field.name} must be a finite number of at least 0, not {size}")
            if np.any(size > MOST):
                raise ValueError(f"the memory of {field.name} must be at most {MOST:g}, not {size}")
        if self.released_at_input > 1:
            raise ValueError(f"released_at_input must be a part from 0 to 1, not {self.released_at_input:g}")

    def of(self, name: str, stages: int) -> np.ndarray:
        """A size by stage; float64. Raises :class:`DoesNotFit` where a list has not one entry a stage."""
        return by_stage(f"sizes of {name}", getattr(self, name), stages)

    def sizes(self, stages: int) -> dict[str, np.ndarray]:
        """All sizes by stage. Raises :class:`DoesNotFit` where a list has not one entry a stage."""
        return {name: self.of(name, stages) for name in SIZES}

    def standing(self, schedule: Schedule) -> np.ndarray:
        """What every rank holds all the time: parameters, gradients and optimizer state of its stages."""
        total = np.sum([self.of(name, schedule.stages) for name in ("parameters", "gradients", "optimizer")], axis=0)
        return np.array([total[list(owned)].sum() for owned in schedule.placement.owned])


SIZES = ("activation", "input", "output", "parameters", "gradients", "optimizer")
"""The sizes among the fields of :class:`Memory`; the others are settings."""

ACTIVATIONS = Memory()
"""Memory that counts activations, one for every microbatch of every stage."""


@dataclass(frozen=True, eq=False)
class Messages:
    """What operations send to other ranks: the ``producer`` of every message (int64) and the stage whose
    ``output`` it is, or the gradient of which (int64). One for several receivers of one output."""

    producer: np.ndarray
    output: np.ndarray


def find_messages(schedule: Schedule) -> tuple[Messages, np.ndarray]:
    """The messages of a schedule, and which of them every need of its slots waits for; -1 for none."""
    producer, consumer = schedule.slots.producer, schedule.slots.consumer
    sent = (schedule.rank[producer] != schedule.rank[consumer]) & np.isin(schedule.kind[consumer], COMPUTE)
    producer, consumer = producer[sent], consumer[sent]
    output = np.where(schedule.kind[consumer] == Kind.F, schedule.stage[producer], schedule.stage[consumer])
    keys, message = np.unique(producer * schedule.stages + output, return_inverse=True)
    of_need = np.full(len(sent), -1)
    of_need[sent] = message
    return Messages(*np.divmod(keys, schedule.stages)), of_need


def live_memory(schedule: Schedule, memory: Memory) -> np.ndarray:
    """What is live on its rank while each operation runs; float64.

    An activation is live from the start of F to the end of B, or, where the backward is split, a part of it
    to the end of I and the rest to the end of W. Where it is recomputed, all of it is live during F, its
    input from there on, and all of it again from the start of R. In an overlapped slot the new one is live
    before the old one is freed. A schedule without a backward frees at the end of F. Then what an operation
    is about to send, and what the rank holds all the time. What waits for a slow SEND is not in it.
    """
    held = _activations(schedule, memory) + memory.standing(schedule)[schedule.rank]
    sizes = memory.of("output", schedule.stages)
    if sizes.any():
        messages, _ = find_messages(schedule)
        sent = np.bincount(messages.producer, sizes[messages.output], len(schedule))
        held += _since_start(schedule, sent) if memory.keeps_sent else sent
    return np.asarray(np.round(held, 9))


@dataclass(frozen=True, eq=False)
class ActivationChanges:
    """By operation, float64: what its start takes, what its end frees, and what lives only while it runs."""

    taken: np.ndarray
    freed: np.ndarray
    passing: np.ndarray


def activation_changes(schedule: Schedule, memory: Memory) -> ActivationChanges:
    """How operations change what their rank keeps of activations."""
    kind = schedule.kind
    forward = kind == Kind.F
    whole = memory.of("activation", schedule.stages)[schedule.stage]
    nothing = np.zeros(len(schedule))
    if not np.isin(kind, BACKWARD).any():
        return ActivationChanges(nothing, nothing, np.where(forward, whole, 0.0))
    recomputed = forward & _recomputed(schedule)
    kept = np.minimum(memory.of("input", schedule.stages)[schedule.stage], whole)
    part = memory.released_at_input
    taken = np.select([recomputed, forward, kind == Kind.R], [kept, whole, whole - kept], 0.0)
    freed = whole * np.select([kind == Kind.B, kind == Kind.I, kind == Kind.W], [1.0, part, 1.0 - part], 0.0)
    return ActivationChanges(taken, freed, np.where(recomputed, whole - kept, 0.0))


def _activations(schedule: Schedule, memory: Memory) -> np.ndarray:
    changes, slot = activation_changes(schedule, memory), schedule.slot
    bounds = np.append(np.flatnonzero(~schedule.joined), len(schedule))
    taken_with_slot = _since_start(schedule, changes.taken)[bounds[slot + 1] - 1]
    freed_before_slot = (_since_start(schedule, changes.freed) - changes.freed)[bounds[slot]]
    passing = np.bincount(slot, changes.passing, len(bounds) - 1)[slot]
    return np.asarray(taken_with_slot - freed_before_slot + passing)


def _since_start(schedule: Schedule, amounts: np.ndarray) -> np.ndarray:
    """The sum of amounts from the start of its rank to every operation, itself included."""
    total = np.append(0.0, np.cumsum(amounts))
    return np.asarray(total[1:] - total[schedule.offsets[:-1]][schedule.rank])


def _recomputed(schedule: Schedule) -> np.ndarray:
    """Which operations belong to a (stage, microbatch) that has an R."""
    key = schedule.stage.astype(np.int64) * schedule.microbatches + schedule.microbatch
    return np.isin(key, key[schedule.kind == Kind.R])
