"""The Ray actor of one rank that runs its Program by itself; a step is one call."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import ray
from ray import cloudpickle

from ..lower.program import Program
from ..runtime.failure import OperationFailed
from ..runtime.report import RankReport
from ..runtime.spec import Batch
from .groups import WirePlan
from .interpreter import Interpreter
from .parts import Part, from_parts
from .rank_host import RankHost

__all__ = ["ACTOR_OPTIONS", "ProgramActor"]

_BESIDE = "beside"

ACTOR_OPTIONS: dict[str, Any] = {"concurrency_groups": {_BESIDE: 1}}
"""Calls of this group are answered while a step runs. A Ray DAG runs beside all calls anyway."""


class _ProgramActor(RankHost):
    """One rank, its links and its program. Ray wraps every method of an actor, so what runs often is elsewhere."""

    def connect(self, program: Program, plan: WirePlan) -> None:
        """Takes the program and joins the other ranks, all at once."""
        self.join(plan)
        self._interpreter = Interpreter(self._rank, program, self._wire)

    @ray.method(concurrency_group=_BESIDE)
    def where(self) -> str:  # type: ignore[override]
        """What the rank is doing, in words."""
        return super().where()

    def steps(self, *parts: Part) -> bytes:
        """Runs the program on one batch after the other, up to the first with which something fails on any rank.

        ``parts`` are the batches and a signature of each. Returns, pickled, by step: what happened, what failed here,
        or None where something failed elsewhere.
        """
        answer: bytes = cloudpickle.dumps(self._steps(*from_parts(parts)))
        return answer

    def _steps(
        self, batches: Sequence[Batch], signatures: Sequence[Hashable]
    ) -> list[OperationFailed | RankReport | None]:
        outcomes: list[OperationFailed | RankReport | None] = []
        failure: OperationFailed | None = None
        for batch, signature in zip(batches, signatures, strict=True):
            if not self._interpreter.run(batch, signature, failure):
                self._rank.drop()
                return [*outcomes, self._interpreter.failure]
            outcomes.append(self._kept() if batch.training else self.evaluated())
            # Of an optimizer that raised, the other ranks learn in the next step.
            failure = outcomes[-1] if isinstance(outcomes[-1], OperationFailed) else None
        return outcomes

    def _kept(self) -> OperationFailed | RankReport:
        """All ranks are well: gradients count, optimizers step."""
        self._rank.updates.keep()
        return self.update()


ProgramActor: Any = ray.remote(**ACTOR_OPTIONS)(_ProgramActor)
"""The actor class of :class:`_ProgramActor`: ``ProgramActor.options(…).remote(spec)``."""
