"""How long operations and messages take: defaults, what the file declares, what the caller says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Any

import numpy as np

from .memory import ACTIVATIONS, MOST, Memory, find_messages
from .operations import TRANSFERS, Kind
from .schedule import Schedule
from .slots import Slots
from .stage_values import by_stage

__all__ = ["Costs", "default_costs"]

UNIT = MappingProxyType({Kind.F: 1.0, Kind.B: 2.0, Kind.I: 1.0, Kind.W: 1.0, Kind.R: 1.0})
"""The unit costs; kinds not named take no time."""

Cost = float | Sequence[float]


@dataclass(frozen=True, init=False)
class Costs:
    """Durations that override those of the file, in any unit of time, and what memory things take.

    ``Costs(F=1.0, B=[2.0, 2.0, 3.0, 2.0], latency=0.5)``: one number for all stages, or one for each.
    Joined kinds, as in ``Costs(**{"F&B": 2.5})``, name an overlapped slot; its stage is that of its first
    operation. ``overhead`` is added to every operation. What a stage sends to another rank arrives after
    ``latency`` and the time that ``memory.output`` takes at ``bandwidth`` (in the unit of memory per unit of
    time); that occupies nobody.

    Raises ValueError for a name that is no kind of operation, and for costs that are negative, not finite or beyond
    1e100.
    """

    kinds: Mapping[tuple[Kind, ...], tuple[float, ...] | float] = field(default_factory=dict)
    latency: float = 0.0
    overhead: float = 0.0
    bandwidth: float = inf
    memory: Memory = ACTIVATIONS

    def __init__(
        self,
        *,
        latency: float = 0.0,
        overhead: float = 0.0,
        bandwidth: float = inf,
        memory: Memory = ACTIVATIONS,
        **kinds: Cost,
    ) -> None:
        for name, cost in [("latency", latency), ("overhead", overhead), *kinds.items()]:
            numbers = np.asarray(cost, dtype=np.float64)
            if not np.all(np.isfinite(numbers)) or np.any(numbers < 0):
                raise ValueError(f"the cost of {name} must be a finite number of at least 0, not {cost}")
            if np.any(numbers > MOST):
                raise ValueError(f"the cost of {name} must be at most {MOST:g}, not {cost}: sums would be infinite")
        if not bandwidth > 0:
            raise ValueError(f"the bandwidth must be more than 0, not {bandwidth}")
        if np.any(np.asarray(memory.output) > MOST * bandwidth):
            raise ValueError(
                f"an output takes more than {MOST:g} at a bandwidth of {bandwidth}: sums would be infinite"
            )
        values = {_kinds(name): tuple(c) if isinstance(c, Sequence) else float(c) for name, c in kinds.items()}
        object.__setattr__(self, "kinds", MappingProxyType(values))
        object.__setattr__(self, "latency", float(latency))
        object.__setattr__(self, "overhead", float(overhead))
        object.__setattr__(self, "bandwidth", float(bandwidth))
        object.__setattr__(self, "memory", memory)

    def require_fit(self, stages: int) -> None:
        """Raises :class:`DoesNotFit` where a list of costs or sizes has not one entry a stage."""
        for kinds, cost in self.kinds.items():
            _by_stage(kinds, cost, stages)
        self.memory.sizes(stages)

    def changed(self, **others: Any) -> Costs:
        """The same costs with others in place of some: arguments as those of the class."""
        named = {"&".join(kind.name for kind in kinds): cost for kinds, cost in self.kinds.items()}
        said = {"latency": self.latency, "overhead": self.overhead, "bandwidth": self.bandwidth, "memory": self.memory}
        return Costs(**{**named, **said, **others})

    def scaled(self, schedule: Schedule, factor: float) -> Costs:
        """What the operations of a schedule take, times a factor; messages and overhead are the same."""
        table = self.table(schedule)
        kinds = {kind.name: (table[kind] * factor).tolist() for kind in Kind}
        for joined, cost in {**schedule.overlap_costs, **self.kinds}.items():
            if len(joined) > 1:
                own = np.broadcast_to(np.asarray(cost, dtype=float), schedule.stages)
                own = np.where(np.isnan(own), sum(table[kind] for kind in joined), own)
                kinds["&".join(kind.name for kind in joined)] = (own * factor).tolist()
        return self.changed(**kinds)

    def table(self, schedule: Schedule) -> np.ndarray:
        """Durations by kind and stage, without overhead: float64 of shape (len(Kind), stages).

        Raises :class:`DoesNotFit` where a list of costs has not one entry a stage.
        """
        table = default_costs(schedule.declared_costs)
        for kinds, own in self.kinds.items():
            if len(kinds) == 1:
                table[kinds[0]] = _by_stage(kinds, own, schedule.stages)
        return table

    def single(self, schedule: Schedule) -> np.ndarray:
        """The duration of every operation outside an overlapped slot; float64."""
        single = self.table(schedule)[schedule.kind, schedule.stage]
        return np.asarray(single + self.overhead * ~np.isin(schedule.kind, TRANSFERS))

    def durations(self, schedule: Schedule, slots: Slots) -> np.ndarray:
        """The duration of every slot; float64. An overlapped slot takes its own cost, else the sum."""
        single = self.single(schedule)
        total = np.add.reduceat(single, slots.first[:-1]) if len(schedule) else np.zeros(0)
        own = {kinds: _by_stage(kinds, c, schedule.stages) for kinds, c in self.kinds.items() if len(kinds) > 1}
        for kinds, costs in {**schedule.overlap_costs, **own}.items():
            for slot in np.flatnonzero(np.diff(slots.first) == len(kinds)):
                first, end = slots.first[slot], slots.first[slot + 1]
                cost = costs[schedule.stage[first]]
                if tuple(sorted(schedule.kind[first:end])) == kinds and not np.isnan(cost):
                    total[slot] = cost + self.overhead * len(kinds)
        return total

    def transfer_times(self, schedule: Schedule) -> np.ndarray:
        """What passes until the output of a stage, or the gradient of it, has arrived; float64, by stage."""
        return np.asarray(self.latency + self.memory.of("output", schedule.stages) / self.bandwidth)

    def delays(self, schedule: Schedule) -> np.ndarray:
        """The same for every need of the schedule's slots; 0 within a rank, and for what is no message."""
        if not self.latency and self.bandwidth == inf:
            return np.zeros(len(schedule.slots.producer))
        messages, of_need = find_messages(schedule)
        return np.asarray(np.append(self.transfer_times(schedule)[messages.output], 0.0)[of_need])


def default_costs(declared: np.ndarray) -> np.ndarray:
    """What a file declares by kind and stage, and unit costs where it is silent (NaN); a new array."""
    table = np.zeros(declared.shape)
    for kind, cost in UNIT.items():
        table[kind] = cost
    return np.where(np.isnan(declared), table, declared)


def _kinds(name: str) -> tuple[Kind, ...]:
    """The kinds that a name such as ``F`` or ``F&B`` means, sorted. Raises ValueError for anything else."""
    parts = [part.strip() for part in name.split("&")]
    unknown = [part for part in parts if part not in Kind.__members__]
    if unknown:
        raise ValueError(f"no kind of operation is called {unknown[0]}; there are {', '.join(Kind.__members__)}")
    return tuple(sorted(Kind[part] for part in parts))


def _by_stage(kinds: tuple[Kind, ...], cost: tuple[float, ...] | float, stages: int) -> np.ndarray:
    return by_stage(f"costs of {'&'.join(kind.name for kind in kinds)}", cost, stages)
