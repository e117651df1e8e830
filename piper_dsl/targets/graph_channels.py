"""The channels of our graphs: Ray's own spin while they wait, and pickle into its object store.

A graph takes its channels from the type of its nodes. Ours are lines where the writer has one to the reader, Ray's with
polite waiting to other nodes, and Ray's for what stays in a process.
"""

from __future__ import annotations

import copy
import secrets
import time
import weakref
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayChannelError, RayChannelTimeoutError
from ray.experimental.channel import CompositeChannel, IntraProcessChannel
from ray.experimental.channel.common import ChannelInterface, ChannelOutputType

from ..runtime.message import Message
from ..runtime.packed import Packed
from .line import DRIVER
from .neighbours import Neighbours

__all__ = ["GraphChannels", "PoliteChannel", "serve"]

_SHORTEST, _LONGEST, _GROWTH = 5e-5, 2e-2, 1.25
"""Seconds that a polite reader sleeps in between: each time longer, so about a quarter of what it has waited."""

_served: weakref.WeakValueDictionary[tuple[str, int], Neighbours] = weakref.WeakValueDictionary()
"""By graph and number, the lines of this process."""


def serve(graph: str, neighbours: Neighbours) -> None:
    """Channels of a graph find lines of this process from here on, as long as there are these."""
    _served[graph, neighbours.number] = neighbours


@dataclass(frozen=True, eq=False)
class GraphChannels(ChannelOutputType):
    """The type of nodes whose results go through such channels; ``ranks`` by the ids of their actors."""

    graph: str
    ranks: Mapping[str, int]

    def create_channel(
        self, writer: Any, reader_and_node_list: list[tuple[Any, str]], driver_actor_id: str | None = None
    ) -> ChannelInterface:
        """The channel from ``writer`` to its readers. Ray asks for it in the writer's process."""
        here = _number(self.ranks)
        near = self.near(here)
        ways: dict[int, ChannelInterface] = {}
        others = []
        for reader, node in reader_and_node_list:
            # The driver is read for by an actor of Ray's, which we do not know.
            number = self.ranks.get(reader._actor_id.hex(), DRIVER)
            if reader == writer:
                ways[number] = IntraProcessChannel(1)
            elif number in near:
                ways[number] = _LineChannel(self.graph, here, number, secrets.randbits(62))
            else:
                others.append((number, (reader, node)))
        if others:
            readers = [reader for _, reader in others]
            far = _PackingChannel(PoliteChannel(CompositeChannel(writer, readers, 1, driver_actor_id), self))
            ways.update({number: far for number, _ in others})
        distinct = set(ways.values())
        return distinct.pop() if len(distinct) == 1 else _GraphChannel(self.ranks, ways)

    def near(self, number: int) -> Set[int]:
        """To whom lines lead from here, where rank ``number`` or the driver is."""
        return _lines(self.graph, number).peers

    def hear(self) -> None:
        """Takes out what has come by the lines of this process."""
        try:
            _lines(self.graph, _number(self.ranks)).hear()
        except ConnectionError as error:
            raise RayChannelError(str(error)) from error


def _number(ranks: Mapping[str, int]) -> int:
    """The rank of this process, if it has one."""
    return ranks.get(ray.get_runtime_context().get_actor_id() or "", DRIVER)


def _lines(graph: str, number: int) -> Neighbours:
    try:
        return _served[graph, number]
    except KeyError:
        raise RayChannelError("the lines of this process are gone") from None


class _Channel(ChannelInterface):
    """Any of ours, as Ray also uses it."""

    def release_buffer(self, timeout: float | None = None) -> None:
        """Drops the next value unread."""
        self.read(timeout)


class _GraphChannel(_Channel):
    """One call's result, where it goes more than one way: by reader."""

    def __init__(self, ranks: Mapping[str, int], ways: Mapping[int, ChannelInterface]) -> None:
        self._ranks = ranks
        self._ways = ways
        self._mine: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _GraphChannel, (self._ranks, self._ways)

    def ensure_registered_as_writer(self) -> None:
        for way in self._distinct:
            way.ensure_registered_as_writer()

    def ensure_registered_as_reader(self) -> None:
        self._own.ensure_registered_as_reader()

    @property
    def _distinct(self) -> Iterable[ChannelInterface]:
        """Readers on other nodes share one."""
        return dict.fromkeys(self._ways.values())

    @property
    def _own(self) -> Any:
        """The way to this process."""
        if self._mine is None:
            self._mine = self._ways[_number(self._ranks)]
        return self._mine

    def write(self, value: Any, timeout: float | None = None) -> None:
        for way in self._distinct:
            way.write(value, timeout)

    def read(self, timeout: float | None = None) -> Any:
        return self._own.read(timeout)

    def close(self) -> None:
        for way in self._distinct:
            way.close()


class _LineChannel(_Channel):
    """What goes by a line from one process to another, under a tag of its own."""

    def __init__(self, graph: str, writer: int, reader: int, tag: int) -> None:
        self._graph = graph
        self._writer = writer
        self._reader = reader
        self._tag = tag
        self._lines: Neighbours | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _LineChannel, (self._graph, self._writer, self._reader, self._tag)

    def ensure_registered_as_writer(self) -> None:
        self._lines = self._lines or _lines(self._graph, self._writer)

    def ensure_registered_as_reader(self) -> None:
        self._lines = self._lines or _lines(self._graph, self._reader)

    def write(self, value: Any, timeout: float | None = None) -> None:
        """Waits for a slot as long as it takes: who reads empties them at once, unless it computes."""
        self.ensure_registered_as_writer()
        assert self._lines is not None
        try:
            self._lines.write(self._reader, self._tag, value)
        except ConnectionError as error:
            raise RayChannelError(str(error)) from error

    def read(self, timeout: float | None = None) -> Any:
        self.ensure_registered_as_reader()
        assert self._lines is not None
        try:
            return self._lines.read(self._writer, self._tag, None if timeout == -1 else timeout)
        except TimeoutError as error:
            raise RayChannelTimeoutError(str(error)) from error
        except ConnectionError as error:
            raise RayChannelError(str(error)) from error

    def close(self) -> None:
        """Wakes whoever waits in this process, as those at the other ends. Ray calls it on copies of what it uses."""
        for (graph, _), lines in list(_served.items()):
            if graph == self._graph:
                lines.close()


class _PackingChannel(_Channel):
    """A channel in which messages travel as bytes, which are pickled faster than tensors.

    What Ray's channels give are views on their memory, which the next value may overwrite; here it is copied.
    """

    def __init__(self, channel: ChannelInterface) -> None:
        self._channel = channel

    def __reduce__(self) -> tuple[Any, ...]:
        return _PackingChannel, (self._channel,)

    def ensure_registered_as_writer(self) -> None:
        self._channel.ensure_registered_as_writer()

    def ensure_registered_as_reader(self) -> None:
        self._channel.ensure_registered_as_reader()

    def write(self, value: Any, timeout: float | None = None) -> None:
        self._channel.write(Packed.of(value) if isinstance(value, Message) else value, timeout)

    def read(self, timeout: float | None = None) -> Any:
        value = self._channel.read(timeout)
        return value.message() if isinstance(value, Packed) else copy.deepcopy(value)

    def close(self) -> None:
        self._channel.close()


class PoliteChannel(ChannelInterface):
    """A channel of Ray's whose reader sleeps while it waits, and empties the slots of its lines: a rank that waits for
    one of them may be the one that is waited for.
    """

    def __init__(self, channel: ChannelInterface, channels: GraphChannels) -> None:
        self._channel = channel
        self._channels = channels
        self._pause = _SHORTEST

    def __reduce__(self) -> tuple[Any, ...]:
        return PoliteChannel, (self._channel, self._channels)

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
            self._channels.hear()
            time.sleep(self._pause)
            self._pause = min(_GROWTH * self._pause, _LONGEST)

    def close(self) -> None:
        self._channel.close()
