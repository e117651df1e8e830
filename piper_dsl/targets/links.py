"""All messages of one rank, coming and going, with what is known of their sizes.

Sizes are learnt: in the first step with data of a shape every message follows its layout. From then on both
ends know it, and receives are posted before their messages are sent. A receive is never too small for its
message, which would end the process.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import torch

from ..runtime.layout import Head, Layout
from ..runtime.message import Message
from .actions import Transfer
from .buffers import Buffers
from .incoming import Incoming
from .outgoing import Outgoing
from .wire import Wire

__all__ = ["Links"]


class Links:
    """The links of one rank to all others."""

    def __init__(self, wire: Wire, bounded: bool) -> None:
        self._buffers = Buffers(wire.device)
        self._wire = wire
        self._near = wire.near
        self._outgoing = Outgoing(wire, bounded)
        self._incoming: dict[int, Incoming] = {}
        self._known: dict[Hashable, dict[int, Layout]] = {}
        self._layouts: dict[int, Layout] = {}
        self._signature: Hashable = None
        self._step = -1

    @property
    def _learning(self) -> bool:
        return self._signature not in self._known

    def begin(self, step: int, signature: Hashable, receives: Iterable[Transfer]) -> None:
        """Starts a step whose data has a ``signature``, the same on all ranks; ``receives`` in their order."""
        self._step, self._signature = step, signature
        if self._learning:
            self._buffers.clear()
            self._outgoing.forget()
            self._near.forget()
        self._layouts = self._known.get(signature, {})
        orders: dict[int, list[Transfer]] = {}
        for transfer in receives:
            if transfer.peer not in self._near:
                orders.setdefault(transfer.peer, []).append(transfer)
        self._incoming = {p: Incoming(self._wire, self._buffers, o, self._layouts) for p, o in orders.items()}
        if not self._learning:
            for incoming in self._incoming.values():
                incoming.post()

    def end(self, good: bool) -> None:
        """Ends a step that all ranks have ended; where all were ``good``, what was learnt is kept."""
        self._outgoing.finish()
        if good:
            self._known[self._signature] = self._layouts

    def send(self, transfer: Transfer, message: Message | None) -> None:
        """Sends a message; None stands for one that a failure left uncomputed. Does not wait for its arrival.

        Raises ValueError for a message of other shapes than in earlier steps with data of this shape.
        """
        found = None if message is None else Layout.of(message)
        near = transfer.peer in self._near
        if self._learning:
            (self._near if near else self._outgoing).introduce(transfer, found)
            if found is None:
                return
            self._layouts[transfer.tag] = found
        layout = self._layouts[transfer.tag]
        if found is not None and found != layout:
            raise ValueError(f"the result was {layout} in earlier steps with data of this shape; now it is {found}")
        if near:
            self._near.send(transfer, layout, message, self._step)
        else:
            self._outgoing.send(transfer, layout, message, self._step, waits=not self._learning)

    def post(self, transfer: Transfer) -> None:
        """Lets a message arrive from here on. Those of neighbours come by themselves."""
        if transfer.peer not in self._near and not self._learning:
            self._incoming[transfer.peer].post(transfer)

    def receive(self, transfer: Transfer) -> Message | None:
        """Waits for a message; None for one that a failure left uncomputed. Raises ValueError for a wrong one."""
        buffer = self._buffer(transfer)
        if buffer is None:
            return None
        head, layout = Head.read(buffer), self._layouts[transfer.tag]
        if (head.step, head.tag) != (self._step, transfer.tag):
            raise ValueError(f"message {transfer.tag} of step {self._step} was due, but {head} arrived")
        if not head.good:
            return None
        ends = (transfer.source, transfer.target, transfer.microbatch)
        return Message(self._step, *ends, layout.views(buffer), layout.needs_grad)

    def _buffer(self, transfer: Transfer) -> torch.Tensor | None:
        """Waits for what a message lies in."""
        if transfer.peer not in self._near:
            incoming = self._incoming[transfer.peer]
            return incoming.learn(transfer) if self._learning else incoming.take(transfer)
        if self._learning:
            layout = self._near.learn(transfer)
            if layout is None:
                return None
            self._layouts[transfer.tag] = layout
        return self._near.take(transfer)
