"""The links of a rank over process groups, with what is known of the sizes of messages.

Sizes are learnt: in the first step with data of a shape every message follows its layout. From then on both
ends know it, and receives are posted before their messages are sent. A receive is never too small for its
message, which would end the process.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import torch

from ..runtime.layout import Layout
from ..runtime.message import Message
from .actions import Transfer
from .buffers import Buffers
from .groups import Groups
from .head import HEAD, Head
from .incoming import Incoming
from .outgoing import Outgoing

__all__ = ["GroupLinks"]

KNOWN = 256
"""Signatures whose layouts are remembered; a training whose shapes change with every batch has no end of them."""


class GroupLinks:
    """The ``Links`` of one rank. ``bounded``: a send may wait for its receive to be posted."""

    def __init__(self, groups: Groups, bounded: bool) -> None:
        self._buffers = Buffers(groups.device)
        self._groups = groups
        self._outgoing = Outgoing(groups, self._buffers, bounded)
        self._incoming: dict[int, Incoming] = {}
        self._known: dict[Hashable, dict[int, Layout]] = {}
        self._layouts: dict[int, Layout] = {}
        self._learnt: dict[int, torch.Tensor | None] = {}
        self._signature: Hashable = None
        self._step = -1

    @property
    def _learning(self) -> bool:
        return self._signature not in self._known

    def begin(self, step: int, signature: Hashable, receives: Iterable[Transfer]) -> None:
        """Starts a step; where its data is of a kind that is known, receives are posted."""
        self._step, self._signature = step, signature
        self._layouts = self._known.get(signature, {})
        orders: dict[int, list[Transfer]] = {}
        for transfer in receives:
            orders.setdefault(transfer.peer, []).append(transfer)
        self._incoming = {p: Incoming(self._groups, self._buffers, o, self._layouts) for p, o in orders.items()}
        if not self._learning:
            for incoming in self._incoming.values():
                incoming.post()

    def end(self, good: bool) -> None:
        """Ends a step that all ranks have ended; where all were ``good``, what was learnt is kept."""
        self._outgoing.finish()
        if good:
            if self._learning and len(self._known) == KNOWN:
                # On all ranks the same one: they see the same steps.
                del self._known[next(iter(self._known))]
            self._known[self._signature] = self._layouts

    def send(self, transfer: Transfer, message: Message | None) -> None:
        """Sends a message. One of other shapes than in earlier steps with data of this shape is a ValueError."""
        found = None if message is None else Layout.of(message)
        if self._learning:
            self._outgoing.introduce(transfer, found)
            if found is None:
                return
            self._layouts[transfer.tag] = found
        layout = self._layouts[transfer.tag]
        if found is not None and found != layout:
            raise ValueError(f"the result was {layout} in earlier steps with data of this shape; now it is {found}")
        self._outgoing.send(transfer, layout, message, self._step, waits=not self._learning)

    def post(self, transfer: Transfer) -> None:
        """Lets a message arrive from here on. One whose size is to be learnt is waited for, in the program's order."""
        incoming = self._incoming[transfer.peer]
        if self._learning:
            self._learnt[transfer.tag] = incoming.learn(transfer)
        else:
            incoming.post(transfer)

    def receive(self, transfer: Transfer) -> Message | None:
        """Waits for a message."""
        tag = transfer.tag
        buffer = self._learnt.pop(tag) if self._learning else self._incoming[transfer.peer].take(transfer)
        if buffer is None:
            return None
        head, layout = Head.read(buffer), self._layouts[tag]
        if (head.step, head.tag) != (self._step, tag):
            raise ValueError(f"message {tag} of step {self._step} was due, but {head} arrived")
        if not head.good:
            return None
        ends = (transfer.source, transfer.target, transfer.microbatch)
        # `data`, since views of one buffer would count each other's changes as theirs.
        tensors = tuple(view.data for view in layout.views(buffer[HEAD:]))
        return Message(self._step, *ends, tensors, layout.needs_grad)
