"""One rank's Program, executed: the same for every step, whatever goes wrong in it."""

from __future__ import annotations

from collections.abc import Hashable

from ..lower.program import Program
from ..runtime.failure import OperationFailed
from ..runtime.message import Message
from ..runtime.rank import Rank
from ..runtime.spec import Batch
from .actions import Compute, Free, Post, Send, Transfer, meets, row_actions
from .wire import Wire

__all__ = ["Interpreter"]


class Interpreter:
    """Runs the instructions of a rank, with its links to the others.

    Drains on error: once an operation has raised here, or a message says that one did elsewhere, nothing is
    computed any more, but every message is still sent, empty, and received, and every sum of gradients that the
    schedule writes is started. So no rank waits for ever, and all meet at the end of the step, where one flag
    tells each whether its step counts.
    """

    def __init__(self, rank: Rank, program: Program, wire: Wire) -> None:
        self._rank = rank
        self._wire = wire
        self._links = wire.links(meets(program))
        self._actions = {training: row_actions(program, rank.number, training) for training in (True, False)}
        self._receives = {
            training: [action.transfer for action in actions if isinstance(action, Post)]
            for training, actions in self._actions.items()
        }
        self._drains = False
        self.failure: OperationFailed | None = None

    def run(self, batch: Batch, signature: Hashable, failure: OperationFailed | None = None) -> bool:
        """Runs the program once; whether all ranks are well. Otherwise :attr:`failure` is what raised here, if any.

        With a ``failure`` of the step before, which the other ranks do not know of, it only drains.
        """
        self.failure, self._drains = failure, failure is not None
        self._rank.load(batch)
        self._links.begin(batch.step, (batch.training, signature), self._receives[batch.training])
        for action in self._actions[batch.training]:
            if isinstance(action, Compute):
                self._compute(action)
            elif isinstance(action, Send):
                self._send(action)
            elif isinstance(action, Post):
                self._links.post(action.transfer)
            elif isinstance(action, Free):
                self._rank.free(action.stage, action.microbatch)
        good = not self._wire.any(self._drains)
        self._links.end(good)
        return good

    def _compute(self, action: Compute) -> None:
        for transfer in action.receives:
            message = self._links.receive(transfer)
            if message is None:
                self._drains = True
            elif not self._drains:
                self._rank.receive(transfer.kind, message)
        if self._drains:
            self._rank.skip(action.operation)
            return
        try:
            self._rank.run(action.operation)
        except OperationFailed as failure:
            self._fail(failure)

    def _send(self, action: Send) -> None:
        try:
            self._links.send(action.transfer, self._message(action.transfer))
        except ValueError as error:
            self._fail(OperationFailed.wrap(self._rank.number, action.producer, error))
            self._links.send(action.transfer, None)

    def _message(self, transfer: Transfer) -> Message | None:
        if self._drains:
            return None
        return self._rank.send(transfer.kind, transfer.source, transfer.target, transfer.microbatch)

    def _fail(self, failure: OperationFailed) -> None:
        self.failure, self._drains = failure, True
