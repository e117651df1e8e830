"""The channels of our graphs: Ray's own spin while they wait, and pickle into its object store.

A graph takes its channels from the type of its nodes. Ours are an :class:`~.inbox.Inbox` for readers on the writer's
node, Ray's with polite waiting for those on other nodes, and Ray's for what stays in a process.
"""

from __future__ import annotations

import pickle
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayChannelError, RayChannelTimeoutError
from ray.experimental.channel import CompositeChannel, IntraProcessChannel
from ray.experimental.channel.common import ChannelInterface, ChannelOutputType

from ..runtime.packed import Packed
from .inbox import Address, Closed, Inbox, Outbox

__all__ = ["GraphChannels", "PoliteChannel"]

_DRIVER = "driver"
_SHORTEST, _LONGEST, _GROWTH = 5e-5, 2e-2, 1.25
"""Seconds that a polite reader sleeps in between: each time longer, so about a quarter of what it has waited."""


@dataclass(frozen=True, eq=False)
class GraphChannels(ChannelOutputType):
    """The type of nodes whose results go through such channels.

    ``inboxes`` has all actors of the graph by their ids, ``driver`` is that of the driver; where one is None, what it
    reads from other processes comes through Ray.
    """

    inboxes: Mapping[str, Address | None]
    driver: Address | None

    def create_channel(
        self, writer: Any, reader_and_node_list: list[tuple[Any, str]], driver_actor_id: str | None = None
    ) -> ChannelInterface:
        """The channel from ``writer`` to its readers. Ray asks for it in the writer's process."""
        here = ray.get_runtime_context().get_node_id()
        ways: dict[str, ChannelInterface] = {}
        others = []
        for reader, node in reader_and_node_list:
            name = self._name(reader)
            address = self.inboxes.get(name, self.driver)
            if reader == writer:
                ways[name] = IntraProcessChannel(1)
            elif address is not None and node == here:
                ways[name] = _InboxChannel(secrets.randbits(62), address)
            else:
                others.append((reader, node))
        if others:
            polite = PoliteChannel(CompositeChannel(writer, others, 1, driver_actor_id))
            ways.update({self._name(reader): polite for reader, _ in others})
        return _GraphChannel(ways)

    def _name(self, reader: Any) -> str:
        """The id of an actor; the driver is read for by an actor of Ray's, which we do not know."""
        number = str(reader._actor_id.hex())
        return number if number in self.inboxes else _DRIVER


class _GraphChannel(ChannelInterface):
    """One call's result, by reader."""

    def __init__(self, ways: Mapping[str, ChannelInterface]) -> None:
        self._ways = ways
        self._mine: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _GraphChannel, (self._ways,)

    def ensure_registered_as_writer(self) -> None:
        for way in set(self._ways.values()):
            way.ensure_registered_as_writer()

    def ensure_registered_as_reader(self) -> None:
        self._own.ensure_registered_as_reader()

    @property
    def _own(self) -> Any:
        """The way to this process."""
        if self._mine is None:
            name = ray.get_runtime_context().get_actor_id() or _DRIVER
            self._mine = self._ways[name if name in self._ways else _DRIVER]
        return self._mine

    def write(self, value: Any, timeout: float | None = None) -> None:
        for way in self._ways.values():
            way.write(value, timeout)

    def read(self, timeout: float | None = None) -> Any:
        return self._own.read(timeout)

    def release_buffer(self, timeout: float | None = None) -> None:
        """Drops the next value unread."""
        self._own.read(timeout)

    def close(self) -> None:
        for way in self._ways.values():
            way.close()


class _InboxChannel(ChannelInterface):
    """A channel of an inbox."""

    def __init__(self, number: int, address: Address) -> None:
        self._number = number
        self._address = address
        self._outbox: Outbox | None = None
        self._inbox: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _InboxChannel, (self._number, self._address)

    def ensure_registered_as_writer(self) -> None:
        self._way()

    def ensure_registered_as_reader(self) -> None:
        self._inbox = self._inbox or Inbox.at(self._address)

    def _way(self) -> Outbox:
        if self._outbox is None:
            try:
                self._outbox = Outbox.to(self._address)
            except OSError as error:
                raise RayChannelError(f"process {self._address.pid}, which reads, is gone") from error
        return self._outbox

    def write(self, value: Any, timeout: float | None = None) -> None:
        parts: list[pickle.PickleBuffer] = []
        # What is of our own is found by its name everywhere; what users made may not be.
        dumps = pickle.dumps if isinstance(value, Packed) else cloudpickle.dumps
        head = dumps(value, 5, buffer_callback=parts.append)
        try:
            self._way().put(self._number, [memoryview(head), *(part.raw() for part in parts)])
        except Closed as error:
            raise RayChannelError(str(error)) from error

    def read(self, timeout: float | None = None) -> Any:
        self.ensure_registered_as_reader()
        if self._inbox is None:
            raise RayChannelError("the inbox is gone")
        try:
            head, *parts = self._inbox.take(self._number, None if timeout == -1 else timeout)
        except TimeoutError as error:
            raise RayChannelTimeoutError(f"nothing arrived within {timeout} s") from error
        except Closed as error:
            raise RayChannelError(str(error)) from error
        return pickle.loads(head, buffers=parts)

    def close(self) -> None:
        """Wakes who reads in this process, and lets go of what has been written in it."""
        self._outbox = None
        if inbox := Inbox.at(self._address):
            inbox.close()


class PoliteChannel(ChannelInterface):
    """A channel of Ray's whose reader sleeps while it waits."""

    def __init__(self, channel: ChannelInterface) -> None:
        self._channel = channel
        self._pause = _SHORTEST

    def __reduce__(self) -> tuple[Any, ...]:
        return PoliteChannel, (self._channel,)

    def ensure_registered_as_writer(self) -> None:
        self._channel.ensure_registered_as_writer()

    def ensure_registered_as_reader(self) -> None:
        self._channel.ensure_registered_as_reader()

    def write(self, value: Any, timeout: float | None = None) -> None:
        self._channel.write(value, timeout)

    def read(self, timeout: float | None = None) -> Any:
        deadline = None if timeout in (None, -1) else time.monotonic() + timeout
        while True:
            try:
                value = self._channel.read(0)
            except RayChannelTimeoutError:
                if deadline is not None and time.monotonic() >= deadline:
                    # Whoever asks again has waited already.
                    raise
            else:
                self._pause = _SHORTEST
                return value
            time.sleep(self._pause)
            self._pause = min(_GROWTH * self._pause, _LONGEST)

    def close(self) -> None:
        self._channel.close()
