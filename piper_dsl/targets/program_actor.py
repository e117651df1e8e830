"""The Ray actor of one rank that runs its Program by itself; a step is one call."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import ray

from ..lower.program import Program
from ..runtime.failure import OperationFailed
from ..runtime.report import RankReport
from ..runtime.spec import Batch
from .interpreter import Interpreter
from .rank_host import RankHost
from .wire import Wire, WirePlan

__all__ = ["ACTOR_OPTIONS", "ProgramActor"]

_BESIDE = "beside"

ACTOR_OPTIONS: dict[str, Any] = {"concurrency_groups": {_BESIDE: 1}}
"""Calls of this group are answered while a step runs. A Ray DAG runs beside all calls anyway."""


class _ProgramActor(RankHost):
    """One rank, its links and its program. Ray wraps every method of an actor, so what runs often is elsewhere."""

    def connect(self, program: Program, plan: WirePlan) -> None:
        """Takes the program and joins the other ranks, all at once."""
        self._wire = Wire(self._rank.number, plan)
        self._interpreter = Interpreter(self._rank, program, self._wire)

    @ray.method(concurrency_group=_BESIDE)
    def where(self) -> str:  # type: ignore[override]
        """What the rank is doing, in words."""
        return super().where()

    def step(self, batch: Batch, signature: Hashable) -> OperationFailed | RankReport | None:
        """Runs the program once: what happened, what failed here, or None where something failed elsewhere."""
        if not self._interpreter.run(batch, signature):
            self._rank.drop()
            return self._interpreter.failure
        return self._kept() if batch.training else self.evaluated()

    def _kept(self) -> OperationFailed | RankReport:
        """All ranks are well: gradients count, those of copies and tied stages are summed, optimizers step."""
        updates = self._rank.updates
        updates.keep()
        if updates.steps:
            shared = updates.shared()
            self._wire.sum((updates.sharing(number), tensor) for number, tensor in shared.items())
            updates.take_shared(shared)
        return self.update(*(self._wire.total([self.squared_norm()]) if updates.clips else ()))


ProgramActor: Any = ray.remote(**ACTOR_OPTIONS)(_ProgramActor)
"""The actor class of :class:`_ProgramActor`: ``ProgramActor.options(…).remote(spec)``."""
