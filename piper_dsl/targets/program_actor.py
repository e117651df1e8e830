"""The Ray actor of one rank that runs its Program by itself; a step is one call."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import ray

from ..lower.program import Program
from ..runtime.failure import OperationFailed
from ..runtime.message import Message
from ..runtime.report import RankReport
from ..runtime.spec import Batch
from .actions import Action, Compute, Free, Post, Send, Transfer, meets, row_actions
from .links import Links
from .rank_host import ACTOR_OPTIONS, RankHost
from .wire import Wire, WirePlan

__all__ = ["ProgramActor"]


class _ProgramActor(RankHost):
    """One rank and its links.

    Drains on error: once an operation has raised here, or a message says that one did elsewhere, nothing is
    computed any more, but every message is still sent, empty, and received. So no rank waits for ever, and
    all meet at the end of the step, where one flag tells each whether its step counts.
    """

    def connect(self, program: Program, plan: WirePlan) -> None:
        """Takes the program and joins the other ranks, all at once."""
        self._wire = Wire(self._rank.number, plan)
        self._links = Links(self._wire, meets(program))
        number = self._rank.number
        self._actions = {training: row_actions(program, number, training) for training in (True, False)}
        self._failure: OperationFailed | None = None
        self._drains = False

    def step(self, batch: Batch, signature: Hashable) -> OperationFailed | RankReport | None:
        """Runs the program once: what happened, what failed here, or None where something failed elsewhere."""
        actions = self._actions[batch.training]
        self._failure, self._drains = None, False
        self._rank.load(batch)
        self._links.begin(batch.step, (batch.training, signature), [a.transfer for a in actions if isinstance(a, Post)])
        for action in actions:
            self._act(action)
        failed = self._wire.any(self._drains)
        self._links.end(not failed)
        if failed:
            self._rank.drop()
            return self._failure
        return self._kept() if batch.training else self.evaluated()

    def _act(self, action: Action) -> None:
        match action:
            case Compute():
                self._compute(action)
            case Send():
                self._send(action)
            case Post():
                self._links.post(action.transfer)
            case Free():
                self._rank.free(action.stage, action.microbatch)

    def _compute(self, action: Compute) -> None:
        for transfer in action.receives:
            message = self._links.receive(transfer)
            self._drains = self._drains or message is None
            if not self._drains:
                assert message is not None
                self._rank.receive(transfer.kind, message)
        if self._drains:
            return
        try:
            self._rank.run(action.operation)
        except OperationFailed as failure:
            self._fail(failure)

    def _send(self, action: Send) -> None:
        transfer = action.transfer
        try:
            self._links.send(transfer, self._message(transfer))
        except ValueError as error:
            self._fail(OperationFailed.wrap(self._rank.number, action.producer, error))
            self._links.send(transfer, None)

    def _message(self, transfer: Transfer) -> Message | None:
        if self._drains:
            return None
        return self._rank.send(transfer.kind, transfer.source, transfer.target, transfer.microbatch)

    def _fail(self, failure: OperationFailed) -> None:
        self._failure, self._drains = failure, True

    def _kept(self) -> OperationFailed | RankReport:
        """All ranks are well: gradients count, those of copies and tied stages are summed, optimizers step."""
        self._rank.keep()
        if self._rank.steps:
            shared = self._rank.shared()
            self._wire.sum((self._rank.sharing(number), tensor) for number, tensor in shared.items())
            self._rank.take_shared(shared)
        return self.update(*(self._wire.total([self.squared_norm()]) if self._rank.clips else ()))


ProgramActor: Any = ray.remote(**ACTOR_OPTIONS)(_ProgramActor)
"""The actor class of :class:`_ProgramActor`: ``ProgramActor.options(…).remote(spec)``."""
