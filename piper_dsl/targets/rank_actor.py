"""The Ray actor of one rank: :class:`~piper_dsl.runtime.rank.Rank` behind methods that can be bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray

from ..ir.operations import Kind, Operation
from ..runtime.failure import OperationFailed
from ..runtime.message import Message
from ..runtime.packed import Packed
from ..runtime.report import RankReport
from ..runtime.spec import Batch, RankSpec
from .inbox import Address, Inbox
from .rank_host import RankHost

__all__ = ["PackingActor", "RankActor"]

Targets = tuple[int, ...]
_Arrived = Any
"""A message, sealed or not, a failure in the place of one, or a token: None."""


class _RankActor(RankHost):
    """One rank. Methods that are bound take their constants, then what arrives.

    They never raise: a failure is returned in place of the result, and whoever reads it passes it on and computes
    nothing more in this step. So the graph stays in step and runs to its end.
    """

    def __init__(self, spec: RankSpec) -> None:
        super().__init__(spec)
        self._failure: OperationFailed | None = None
        self._training = True
        self._well = True
        self._inbox: Inbox | None = None

    # --- before the graph --------------------------------------------------------------------

    def address(self) -> Address:
        """Where other processes reach this one."""
        self._inbox = self._inbox or Inbox(ray.get_runtime_context().get_node_id())
        return self._inbox.address

    def reaches(self, addresses: Sequence[Address]) -> bool:
        """Whether this process reaches all addresses on its node."""
        assert self._inbox is not None
        return self._inbox.reaches(addresses)

    # --- bound into the graph ----------------------------------------------------------------

    def load(self, batch: Batch) -> None:
        """Starts a step with the data of this rank."""
        self._failure = None
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
        failed = next((value for value in arrived if isinstance(value, OperationFailed)), None)
        self._failure = self._failure or failed
        results: tuple[Any, ...] = ()
        if self._failure is not None and self._training:
            self._rank.skip(operation)
        elif self._failure is None:
            try:
                results = self._computed(operation, targets, frees, arrived)
            except OperationFailed as failure:
                self._failure = failure
            except Exception as error:
                self._failure = OperationFailed.wrap(self._rank.number, operation, error)
        if self._failure is not None:
            results = (self._failure,) * max(1, len(targets))
        return results if len(results) > 1 else next(iter(results), None)

    def _computed(
        self, operation: Operation, targets: Targets, frees: bool, arrived: Sequence[_Arrived]
    ) -> tuple[Any, ...]:
        if not self._training and operation.kind is not Kind.F:
            return (None,) * len(targets)
        direction, stage, microbatch = _direction(operation), operation.stage, operation.microbatch
        for value in arrived:
            message = self._opened(value)
            if isinstance(message, Message):
                self._rank.receive(direction, message)
        self._rank.run(operation)
        if microbatch is None:
            return ()
        if frees:
            self._rank.free(stage, microbatch)
        return tuple(self._sealed(self._rank.send(direction, stage, target, microbatch)) for target in targets)

    def _opened(self, value: Any) -> Any:
        return value

    def _sealed(self, message: Message) -> Any:
        return message

    # --- the end of a step: what it changes, it changes where all ranks are known to be well ----

    def finish(self, *tokens: _Arrived) -> OperationFailed | None:
        """Ends the operations; reads what nobody else does. Returns what failed, None if nothing."""
        failed = next((token for token in tokens if isinstance(token, OperationFailed)), None)
        self._failure = self._failure or failed
        return self._failure

    def keep(self, *failures: OperationFailed | None) -> None:
        """The gradients of the step count if no rank failed, else it leaves no trace on any."""
        self._well = all(failure is None for failure in failures)
        if not self._well:
            self._rank.drop()
        elif self._training:
            self._rank.updates.keep()

    def conclude(self, kept: None) -> OperationFailed | RankReport | None:
        """Steps the optimizers; what ran when, or what failed on this rank."""
        if not self._well:
            return self._failure
        return self.update() if self._training else self.evaluated()


class _PackingActor(_RankActor):
    """The same where messages do not go through accelerators: bytes are pickled faster than tensors."""

    def _opened(self, value: Any) -> Any:
        return value.message() if isinstance(value, Packed) else value

    def _sealed(self, message: Message) -> Any:
        return Packed.of(message)


RankActor: Any = ray.remote(_RankActor)
"""The actor class of :class:`_RankActor`: ``RankActor.options(…).remote(spec)``."""

PackingActor: Any = ray.remote(_PackingActor)
"""The actor class of :class:`_PackingActor`."""


def _direction(operation: Operation) -> Kind:
    """F for messages that go with the forward, B for gradients."""
    return Kind.F if operation.kind is Kind.F else Kind.B
