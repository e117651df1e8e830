"""The Ray actor of one rank: :class:`~piper_dsl.runtime.rank.Rank` behind methods that can be bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray
import torch

from ..ir.operations import Kind, Operation
from ..runtime.failure import OperationFailed
from ..runtime.message import Message
from ..runtime.packed import Packed
from ..runtime.shared import total
from ..runtime.spec import Batch, RankSpec
from .rank_host import RankHost

__all__ = ["PackingActor", "RankActor"]

_Arrived = Message | OperationFailed | None


class _RankActor(RankHost):
    """One rank. Methods that are bound take what arrives first, then their constants.

    They never raise: a failure is returned in place of the result, and whoever reads it passes it on
    and computes nothing more in this step. So the graph stays in step and runs to its end. What the
    step changes, it changes behind the graph, when all ranks are known to be well: ``keep`` and ``update``.
    """

    def __init__(self, spec: RankSpec) -> None:
        super().__init__(spec)
        self._failure: OperationFailed | None = None
        self._training = True

    # --- bound into the graph ----------------------------------------------------------------

    def load(self, batches: Sequence[Batch], rank: int) -> None:
        """Starts a step with the data of this rank."""
        self._failure = None
        self._training = batches[rank].training
        self._rank.load(batches[rank])

    def forward(self, arrived: _Arrived, stage: int, microbatch: int, target: int | None, frees: bool) -> _Arrived:
        return self._run(arrived, Operation(Kind.F, stage, microbatch), target, frees)

    def backward(self, arrived: _Arrived, stage: int, microbatch: int, target: int | None, frees: bool) -> _Arrived:
        return self._run(arrived, Operation(Kind.B, stage, microbatch), target, frees)

    def backward_input(
        self, arrived: _Arrived, stage: int, microbatch: int, target: int | None, frees: bool
    ) -> _Arrived:
        return self._run(arrived, Operation(Kind.I, stage, microbatch), target, frees)

    def backward_weight(
        self, arrived: _Arrived, stage: int, microbatch: int, target: int | None, frees: bool
    ) -> _Arrived:
        return self._run(arrived, Operation(Kind.W, stage, microbatch), target, frees)

    def recompute(self, arrived: _Arrived, stage: int, microbatch: int, target: int | None, frees: bool) -> _Arrived:
        return self._run(arrived, Operation(Kind.R, stage, microbatch), target, frees)

    def optimizer_step(self, arrived: _Arrived, stage: int) -> _Arrived:
        return self._run(arrived, Operation(Kind.OPT, stage), None, False)

    def reduce_grad(self, arrived: _Arrived, stage: int) -> _Arrived:
        return self._run(arrived, Operation(Kind.REDUCE_GRAD, stage), None, False)

    def unshard(self, arrived: _Arrived, stage: int) -> _Arrived:
        return self._run(arrived, Operation(Kind.UNSHARD, stage), None, False)

    def reshard(self, arrived: _Arrived, stage: int) -> _Arrived:
        return self._run(arrived, Operation(Kind.RESHARD, stage), None, False)

    def finish(self, *tokens: _Arrived) -> OperationFailed | None:
        """Ends the graph's part of a step; reads what nobody else does. Returns what failed, None if nothing."""
        failed = next((token for token in tokens if isinstance(token, OperationFailed)), None)
        return self._failure or failed

    def _run(self, arrived: _Arrived, operation: Operation, target: int | None, frees: bool) -> _Arrived:
        if isinstance(arrived, OperationFailed):
            self._failure = self._failure or arrived
        if self._failure is not None:
            return self._failure
        try:
            return self._computed(arrived, operation, target, frees)
        except OperationFailed as failure:
            self._failure = failure
        except Exception as error:
            self._failure = OperationFailed.wrap(self._rank.number, operation, error)
        return self._failure

    def _computed(self, arrived: _Arrived, operation: Operation, target: int | None, frees: bool) -> Message | None:
        """Runs an operation; the message it has for a stage on another rank, if it has one."""
        if not self._training and operation.kind is not Kind.F:
            return None
        if isinstance(arrived, Message):
            self._rank.receive(_direction(operation), arrived)
        self._rank.run(operation)
        if operation.microbatch is None:
            return None
        if frees:
            self._rank.free(operation.stage, operation.microbatch)
        if target is None:
            return None
        return self._rank.send(_direction(operation), operation.stage, target, operation.microbatch)

    # --- called behind the graph, on all ranks alike -----------------------------------------

    def keep(self) -> None:
        """No rank failed: the gradients of the step count."""
        self._rank.updates.keep()

    def drop(self) -> None:
        """Some rank failed: the step leaves no trace."""
        self._rank.drop()

    def shared(self) -> dict[int, torch.Tensor]:
        """The gradients that are to be summed over ranks before they are stepped."""
        return self._rank.updates.shared()

    def take_shared(self, *parts: dict[int, torch.Tensor]) -> None:
        """Takes the sums of what ``shared`` gave on all ranks."""
        numbers = {number for part in parts for number in part}
        self._rank.updates.take_shared({n: total(part[n] for part in parts if n in part) for n in numbers})


class _PackingActor(_RankActor):
    """The same where messages go through shared memory: Ray pickles bytes faster than tensors."""

    def _computed(self, arrived: Any, operation: Operation, target: int | None, frees: bool) -> Any:
        message = arrived.message() if isinstance(arrived, Packed) else arrived
        result = super()._computed(message, operation, target, frees)
        return None if result is None else Packed.of(result)


RankActor: Any = ray.remote(_RankActor)
"""The actor class of :class:`_RankActor`: ``RankActor.options(…).remote(spec)``."""

PackingActor: Any = ray.remote(_PackingActor)
"""The actor class of :class:`_PackingActor`."""


def _direction(operation: Operation) -> Kind:
    """F for messages that go with the forward, B for gradients."""
    return Kind.F if operation.kind is Kind.F else Kind.B
