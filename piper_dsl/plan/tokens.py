"""What the calls of a Ray DAG read that get no message from another rank."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Call", "Threaded", "thread_tokens"]

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Call(Generic[Name]):
    """A call on a rank: its result, the messages it reads, and whether its result is a message too."""

    rank: int
    result: Name
    messages: tuple[Name, ...]
    sends: bool


@dataclass(frozen=True)
class Threaded(Generic[Name]):
    """``sources[k]`` are what call ``k`` reads; ``unread[r]`` are the results that rank ``r`` reads at its end."""

    sources: tuple[tuple[Name, ...], ...]
    unread: tuple[tuple[Name, ...], ...]


def thread_tokens(calls: Iterable[Call[Name]], loaded: Callable[[int], Name], ranks: int) -> Threaded[Name]:
    """Gives every call an input, and every result a reader.

    A call that gets no message takes the latest result of its rank that nobody reads, else the one that says
    that its rank has its data.
    """
    unread: list[list[Name]] = [[] for _ in range(ranks)]
    sources: list[tuple[Name, ...]] = []
    for call in calls:
        mine = unread[call.rank]
        sources.append(call.messages or ((mine.pop() if mine else loaded(call.rank)),))
        if not call.sends:
            mine.append(call.result)
    read = {name for names in sources for name in names}
    for rank, names in enumerate(unread):
        if not names or loaded(rank) not in read:
            names.append(loaded(rank))
    return Threaded(tuple(sources), tuple(map(tuple, unread)))
