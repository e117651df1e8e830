"""Many evaluations at once: a frame holds the names of one block for all its lanes.

A lane is one execution of a block: one rank of a rank body, one iteration of a loop. All lanes run
together, so that expanding costs a few array operations a statement, however often it repeats. A
value is an ``int`` where it is the same in all lanes, else an int64 array of one entry a lane.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

__all__ = ["Contexts", "Frame", "Value", "lane"]

Value = int | np.ndarray


def lane(value: Value, index: int) -> int:
    """The value in one lane."""
    return value if isinstance(value, int) else int(value[index])


class Contexts:
    """The values of variables around operations, collected while expanding (see ``ir.Origin``)."""

    def __init__(self) -> None:
        self.count = 0
        self.names: list[str] = []
        self._parents: list[np.ndarray] = []
        self._variables: list[np.ndarray] = []
        self._values: list[np.ndarray] = []

    def add(self, name: str, parents: np.ndarray, values: np.ndarray) -> np.ndarray:
        """New contexts that bind ``name`` inside ``parents``; their numbers."""
        if name not in self.names:
            self.names.append(name)
        self._parents.append(parents)
        self._values.append(values)
        self._variables.append(np.full(len(values), self.names.index(name), dtype=np.int32))
        numbers = np.arange(self.count, self.count + len(values))
        self.count += len(values)
        return numbers

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Parents, variables and values of all contexts."""
        none = np.zeros(0, dtype=np.int64)
        return (
            np.concatenate([none, *self._parents]).astype(np.int32),
            np.concatenate([none, *self._variables]).astype(np.int32),
            np.concatenate([none, *self._values]),
        )

    def bindings(self, context: int) -> dict[str, int]:
        """The variables of one context, outermost first."""
        parents, variables, values = self.arrays()
        found = []
        while context >= 0:
            found.append((self.names[variables[context]], int(values[context])))
            context = int(parents[context])
        return dict(reversed(found))


@dataclass(eq=False)
class Frame:
    """The names of a block, in ``count`` lanes.

    ``index`` maps the lanes to those of ``parent`` (None: one to one). ``rank`` is the rank of every
    lane, None outside of rank bodies; ``context`` numbers the contexts of :class:`Contexts`.
    """

    count: int
    parent: Frame | None = None
    index: np.ndarray | None = None
    rank: Value | None = None
    context: np.ndarray = field(default_factory=lambda: np.full(1, -1))
    values: dict[str, Value | None] = field(default_factory=dict)

    def find(self, name: str) -> Value | None:
        """The value of a name in every lane; None if its definition failed. The name is in scope."""
        if name not in self.values:
            assert self.parent is not None, name
            self.values[name] = _select(self.parent.find(name), self.index)
        return self.values[name]

    def knows(self, name: str) -> bool:
        return name in self.values or (self.parent is not None and self.parent.knows(name))

    def narrowed(self, index: np.ndarray) -> Frame:
        """The frame of some of the lanes (or of repeated ones)."""
        rank = None if self.rank is None else _select(self.rank, index)
        return Frame(len(index), self, index, rank, self.context[index])

    def called(self, root: Frame, values: dict[str, Value | None]) -> Frame:
        """A frame for what sees the names of the file and its own arguments only."""
        return Frame(self.count, root, None, self.rank, self.context, values)


def _select(value: Value | None, index: np.ndarray | None) -> Value | None:
    return value if index is None or not isinstance(value, np.ndarray) else value[index]
