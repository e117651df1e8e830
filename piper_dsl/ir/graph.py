"""The stage graph: which stage's output another one reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

__all__ = ["StageGraph"]


@dataclass(frozen=True)
class StageGraph:
    """A directed acyclic graph over ``stages`` stages; edges are (from, to), sorted."""

    stages: int
    edges: tuple[tuple[int, int], ...]

    @classmethod
    def chain(cls, stages: int) -> StageGraph:
        """0 → 1 → … → stages-1."""
        return cls(stages, tuple((s, s + 1) for s in range(stages - 1)))

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Of every stage, the stages it reads from, in increasing order."""
        return self._neighbours(1, 0)

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Of every stage, the stages that read from it, in increasing order."""
        return self._neighbours(0, 1)

    def _neighbours(self, key: int, value: int) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in range(self.stages)]
        for edge in self.edges:
            found[edge[key]].append(edge[value])
        return tuple(tuple(sorted(stages)) for stages in found)

    @cached_property
    def cycle(self) -> tuple[int, ...]:
        """Stages that read from each other in a circle, each read by the next; empty if there are none."""
        stuck = set(range(self.stages)) - set(self.topological)
        if not stuck:
            return ()
        path = [min(stuck)]
        while True:
            # Every stuck stage waits for another one.
            before = next(s for s in self.predecessors[path[-1]] if s in stuck)
            if before in path:
                return tuple(reversed(path[path.index(before) :]))
            path.append(before)

    @cached_property
    def topological(self) -> tuple[int, ...]:
        """The stages so that each follows what it reads from; shorter than ``stages`` if there is a cycle."""
        waiting = [len(stages) for stages in self.predecessors]
        ready = [s for s in range(self.stages) if not waiting[s]]
        for stage in ready:
            for successor in self.successors[stage]:
                waiting[successor] -= 1
                if not waiting[successor]:
                    ready.append(successor)
        return tuple(ready)
