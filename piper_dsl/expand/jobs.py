"""What is to be ordered: the operations of all microbatches, where they run, how long, and what they need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from ..ir.graph import StageGraph
from ..ir.operations import Kind
from ..ir.placement import Placement

__all__ = ["FORMS", "Jobs"]

FORMS = ((Kind.F,), (Kind.F, Kind.B), (Kind.F, Kind.I, Kind.W))
"""What a microbatch runs on every stage: a forward only, a whole backward, or one in two halves."""


@dataclass(frozen=True, eq=False)
class Jobs:
    """One job an operation; job ``(k * stages + s) * microbatches + i`` is of kind ``kinds[k]``.

    ``length[k][s]`` is what a job of that kind and stage takes, in any unit of time; ``transfer[s]`` what
    passes until the output of stage ``s``, or the gradient of it, has arrived on another rank.
    """

    kinds: tuple[Kind, ...]
    microbatches: int
    placement: Placement
    graph: StageGraph
    length: Sequence[Sequence[float]]
    transfer: Sequence[float]

    def __len__(self) -> int:
        return len(self.kinds) * self.graph.stages * self.microbatches

    def number(self, kind: Kind, stage: int, microbatch: int) -> int:
        return (self.kinds.index(kind) * self.graph.stages + stage) * self.microbatches + microbatch

    def key(self, job: int) -> tuple[Kind, int, int]:
        """The kind, stage and microbatch of a job."""
        rest, microbatch = divmod(job, self.microbatches)
        kind, stage = divmod(rest, self.graph.stages)
        return self.kinds[kind], stage, microbatch

    @cached_property
    def backward(self) -> Kind | None:
        """The kind that brings a microbatch back: B or I, None where there is none."""
        return next((kind for kind in self.kinds if kind in (Kind.B, Kind.I)), None)

    @cached_property
    def ends(self) -> Kind:
        """The kind whose end frees an activation: the last of a microbatch on a stage."""
        return self.kinds[-1]

    @cached_property
    def rank(self) -> list[int]:
        """The rank of every job."""
        by_cell: list[int] = self.placement.rank_of.ravel().tolist()
        return by_cell * len(self.kinds)

    @cached_property
    def duration(self) -> list[float]:
        rows = (row[stage] for row, stage in product(self.length, range(self.graph.stages)))
        return [length for length in rows for _ in range(self.microbatches)]

    @cached_property
    def needs(self) -> list[tuple[int, ...]]:
        """The jobs that every job needs."""
        found: list[tuple[int, ...]] = []
        for kind, stage in product(self.kinds, range(self.graph.stages)):
            sources = [self.number(other, source, 0) for other, source in self.sources(kind, stage)]
            found += [tuple(source + i for source in sources) for i in range(self.microbatches)]
        return found

    def sources(self, kind: Kind, stage: int) -> Iterator[tuple[Kind, int]]:
        """What an operation needs, as kinds and stages: its microbatch is the same."""
        if kind is Kind.F:
            yield from ((Kind.F, source) for source in self.graph.predecessors[stage])
        elif kind is Kind.W:
            yield Kind.I, stage
        else:
            yield Kind.F, stage
            yield from ((kind, source) for source in self.graph.successors[stage])

    @cached_property
    def needed_by(self) -> list[list[int]]:
        """The jobs that need every job."""
        found: list[list[int]] = [[] for _ in range(len(self))]
        for job, needs in enumerate(self.needs):
            for need in needs:
                found[need].append(job)
        return found

    def delay(self, need: int, job: int) -> float:
        """What passes from the end of what a job needs until it has arrived."""
        if self.rank[need] == self.rank[job]:
            return 0.0
        output = need if self.kinds[job // self._cells] is Kind.F else job
        return self.transfer[output // self.microbatches % self.graph.stages]

    @cached_property
    def _cells(self) -> int:
        return self.graph.stages * self.microbatches

    def queues(self) -> Mapping[tuple[int, Kind, int], list[int]]:
        """The jobs of every (rank, kind, stage), by microbatch; those of a rank are later stages first."""
        found: dict[tuple[int, Kind, int], list[int]] = {}
        for kind, stage in product(self.kinds, reversed(range(self.graph.stages))):
            for i, rank in enumerate(self.placement.rank_of[stage].tolist()):
                found.setdefault((rank, kind, stage), []).append(self.number(kind, stage, i))
        return found
