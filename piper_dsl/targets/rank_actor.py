"""The Ray actor of one rank: :class:`~piper_dsl.runtime.rank.Rank` behind methods that can be bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray

from ..ir.operations import Kind, Operation
from ..runtime.failure import OperationFailed
from ..runtime.layout import Layout
from ..runtime.message import Message
from ..runtime.report import RankReport
from ..runtime.spec import Batch, RankSpec
from .graph_channels import serve
from .groups import WirePlan
from .rank_host import RankHost

__all__ = ["RankActor"]

Targets = tuple[int, ...]
_Arrived = Any
"""A message, a failure in the place of one, or a token: None."""


class _RankActor(RankHost):
    """One rank. Methods that are bound take their constants, then what arrives.

    They never raise: a failure is returned in place of the result, and whoever reads it passes it on and computes
    nothing more in this step. So the graph stays in step and runs to its end.
    """

    def __init__(self, spec: RankSpec) -> None:
        super().__init__(spec)
        self._failure: OperationFailed | None = None
        self._training = True
        self._unneeded: tuple[int, int] | None = None

    # --- before the graph --------------------------------------------------------------------

    def join(self, plan: WirePlan) -> None:
        """Joins the other ranks, all at once; where their graph has a name, its channels find the lines."""
        super().join(plan)
        if plan.graph:
            serve(plan.graph, self._wire.neighbours)

    # --- bound into the graph ----------------------------------------------------------------

    def load(self, batch: Batch) -> None:
        """Starts a step with the data of this rank."""
        self._failure = None
        self._unneeded = None
        self._training = batch.training
        self._rank.load(batch)

    def forward(self, stage: int, microbatch: int, targets: Targets, frees: bool, *arrived: _Arrived) -> Any:
        return self._run(Operation(Kind.F, stage, microbatch), targets, frees, arrived)

    def backward(self, stage: int, microbatch: int, targets: Targets, frees: bool, *arrived: _Arrived) -> Any:
        return self._run(Operation(Kind.B, stage, microbatch), targets, frees, arrived)

    def backward_input(self, stage: int, microbatch: int, targets: Targets, frees: bool, *arrived: _Arrived) -> Any:
        return self._run(Operation(Kind.I, stage, microbatch), targets, frees, arrived)

    def backward_weight(self, stage: int, microbatch: int, targets: Targets, frees: bool, *arrived: _Arrived) -> Any:
        return self._run(Operation(Kind.W, stage, microbatch), targets, frees, arrived)

    def recompute(self, stage: int, microbatch: int, targets: Targets, frees: bool, *arrived: _Arrived) -> Any:
        return self._run(Operation(Kind.R, stage, microbatch), targets, frees, arrived)

    def optimizer_step(self, stage: int, *arrived: _Arrived) -> Any:
        return self._run(Operation(Kind.OPT, stage), (), False, arrived)

    def reduce_grad(self, stage: int, *arrived: _Arrived) -> Any:
        return self._run(Operation(Kind.REDUCE_GRAD, stage), (), False, arrived)

    def unshard(self, stage: int, *arrived: _Arrived) -> Any:
        return self._run(Operation(Kind.UNSHARD, stage), (), False, arrived)

    def reshard(self, stage: int, *arrived: _Arrived) -> Any:
        return self._run(Operation(Kind.RESHARD, stage), (), False, arrived)

    def _run(self, operation: Operation, targets: Targets, frees: bool, arrived: Sequence[_Arrived]) -> Any:
        """What an operation has for stages on other ranks: one result each, None for nobody; a failure instead."""
        results: tuple[Any, ...] = ()
        try:
            self._let_go()
            self._take_note(arrived)
            if self._failure is None:
                results = self._computed(operation, targets, frees, arrived)
            elif self._training:
                self._rank.skip(operation)
        except OperationFailed as failure:
            self._failure = failure
        except Exception as error:
            self._failure = self._failure or OperationFailed.wrap(self._rank.number, operation, error)
        if self._failure is not None:
            results = (self._failure,) * max(1, len(targets))
        return results if len(results) > 1 else next(iter(results), None)

    def _let_go(self) -> None:
        """Drops what the last operation was the last to need: its results have left by now, so they did not wait."""
        if self._unneeded is not None:
            self._rank.free(*self._unneeded)
            self._unneeded = None

    def _take_note(self, arrived: Sequence[_Arrived]) -> None:
        """Of a failure, if one has arrived."""
        failed = next((value for value in arrived if isinstance(value, OperationFailed)), None)
        self._failure = self._failure or failed

    def _computed(
        self, operation: Operation, targets: Targets, frees: bool, arrived: Sequence[_Arrived]
    ) -> tuple[Any, ...]:
        if not self._training and operation.kind is not Kind.F:
            return (None,) * len(targets)
        direction, stage, microbatch = _direction(operation), operation.stage, operation.microbatch
        for value in arrived:
            if isinstance(value, Message):
                self._rank.receive(direction, value)
        self._rank.run(operation)
        if microbatch is None:
            return ()
        if frees:
            self._unneeded = stage, microbatch
        messages = tuple(self._rank.send(direction, stage, target, microbatch) for target in targets)
        for message in messages:
            # What cannot be sent is told of here, where it is known who made it.
            Layout.of(message)
        return messages

    def conclude(self, *tokens: _Arrived) -> OperationFailed | RankReport | None:
        """Ends a step, on all ranks together; reads what nobody else does. Where all are well, optimizers step.

        Returns what ran when, what failed on this rank, or None where something failed elsewhere.
        """
        self._let_go()
        self._take_note(tokens)
        if self._wire.any(self._failure is not None):
            self._rank.drop()
            return self._failure
        if not self._training:
            return self.evaluated()
        self._rank.updates.keep()
        return self.update()


RankActor: Any = ray.remote(_RankActor)
"""The actor class of :class:`_RankActor`: ``RankActor.options(…).remote(spec)``."""


def _direction(operation: Operation) -> Kind:
    """F for messages that go with the forward, B for gradients."""
    return Kind.F if operation.kind is Kind.F else Kind.B
