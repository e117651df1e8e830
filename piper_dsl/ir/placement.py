"""Which rank runs an operation: a question of (stage, microbatch)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

__all__ = ["Placement", "loop_ranks", "vee_ranks"]


def loop_ranks(stages: int, ranks: int) -> np.ndarray:
    """Stage ``s`` on rank ``s % ranks``; int32 of shape (stages,)."""
    return np.asarray(np.arange(stages) % ranks, dtype=np.int32)


def vee_ranks(stages: int, ranks: int) -> np.ndarray:
    """Folding back at both ends: 0, 1, …, p-1, p-1, …, 1, 0, 0, 1, …; int32 of shape (stages,)."""
    there = np.arange(stages) % ranks
    back = np.arange(stages) // ranks % 2 == 1
    return np.asarray(np.where(back, ranks - 1 - there, there), dtype=np.int32)


@dataclass(frozen=True, eq=False)
class Placement:
    """``rank_of[s, i]`` is the rank of stage ``s`` for microbatch ``i``; int32, (stages, microbatches).

    Where a row is not constant, copies of the stage live on several ranks (bidirectional pipelines).
    """

    rank_of: np.ndarray
    ranks: int

    @classmethod
    def by_stage(cls, rank_of_stage: np.ndarray, ranks: int, microbatches: int) -> Placement:
        """A placement that does not depend on the microbatch."""
        return cls(np.broadcast_to(rank_of_stage[:, None], (len(rank_of_stage), microbatches)), ranks)

    def __call__(self, stage: int, microbatch: int | None = None) -> int:
        """The rank of a stage for a microbatch; for its first microbatch where none is given."""
        return int(self.rank_of[stage, microbatch or 0])

    @cached_property
    def owned(self) -> tuple[tuple[int, ...], ...]:
        """The stages of every rank, in increasing order."""
        stages, microbatches = self.rank_of.shape
        table = np.zeros((self.ranks, stages), dtype=bool)
        table[self.rank_of, np.arange(stages)[:, None]] = microbatches > 0
        return tuple(tuple(np.flatnonzero(row).tolist()) for row in table)

    @cached_property
    def copies(self) -> tuple[tuple[int, ...], ...]:
        """The ranks that hold the parameters of every stage, in increasing order."""
        return tuple(tuple(np.unique(row).tolist()) for row in self.rank_of)
