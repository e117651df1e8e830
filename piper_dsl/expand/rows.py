"""Operations while they are being expanded: columns, sorted by lane."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import numpy as np

__all__ = ["Rows"]


@dataclass(frozen=True, eq=False)
class Rows:
    """Operations in the order they run within each lane; int64 and bool arrays of one length."""

    lane: np.ndarray
    kind: np.ndarray
    stage: np.ndarray
    microbatch: np.ndarray
    joined: np.ndarray
    site: np.ndarray
    context: np.ndarray

    def __len__(self) -> int:
        return len(self.lane)

    @classmethod
    def merged(cls, parts: Iterable[Rows]) -> Rows:
        """Parts that run one after another, lane by lane."""
        some = [part for part in parts if len(part)] or [_NOTHING]
        if len(some) == 1:
            return some[0]
        columns = {f.name: np.concatenate([getattr(part, f.name) for part in some]) for f in fields(cls)}
        order = np.argsort(columns["lane"], kind="stable")
        return cls(**{name: column[order] for name, column in columns.items()})

    def in_lanes(self, index: np.ndarray) -> Rows:
        """The rows with every lane replaced by the one it came from; ``index`` is non-decreasing."""
        return replace(self, lane=index[self.lane])


_EMPTY = np.zeros(0, dtype=np.int64)
_NOTHING = Rows(_EMPTY, _EMPTY, _EMPTY, _EMPTY, np.zeros(0, dtype=bool), _EMPTY, _EMPTY)
