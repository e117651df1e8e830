"""What a checkpoint holds where there are replicas: of what they have alike, one copy; else, what each has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Replica", "State"]

State = Mapping[int, Mapping[str, Any]]
"""By stage: ``module``, ``gradients``, and whatever else the next steps depend on."""


@dataclass(frozen=True)
class Replica:
    """The one of ``count`` replicas that a rank is in: ``number``, from 0, and its place among its ``ranks``."""

    number: int
    count: int
    place: int
    ranks: int

    @classmethod
    def of(cls, rank: int, all_ranks: int, count: int) -> Replica:
        ranks = all_ranks // count
        return cls(rank // ranks, count, rank % ranks, ranks)

    def kept(self, state: State, buffers: Mapping[int, Sequence[str]]) -> State:
        """What is saved of a state: all of it by the first replica, by others what they have for themselves.

        These are the gradients that accumulate, and the modules' ``buffers``, by stage.
        """
        if self.number == 0:
            return state
        return {
            stage: {"gradients": one["gradients"], "module": {name: one["module"][name] for name in buffers[stage]}}
            for stage, one in state.items()
        }

    def taken(self, parts: Sequence[State]) -> State:
        """The state of a rank from what every replica of a checkpoint has saved at its place.

        Where they were not as many as now, all begin with the buffers of the first, and the first with all gradients.
        """
        first = parts[0]
        if len(parts) == self.count:
            own = parts[self.number]
            return {
                s: {**one, "module": {**one["module"], **own[s]["module"]}, "gradients": own[s]["gradients"]}
                for s, one in first.items()
            }
        return {s: {**one, "gradients": self._summed([part[s] for part in parts])} for s, one in first.items()}

    def _summed(self, parts: Sequence[Mapping[str, Any]]) -> list[torch.Tensor | None]:
        columns = list(zip(*(part["gradients"] for part in parts), strict=True))
        if self.number > 0:
            return [None] * len(columns)
        found = [[gradient for gradient in column if gradient is not None] for column in columns]
        return [sum(given[1:], start=given[0]) if given else None for given in found]
