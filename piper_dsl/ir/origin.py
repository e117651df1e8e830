"""Where the operations of a schedule come from: a place in a text and the values of its variables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..diagnostics import Source, Span

__all__ = ["Origin"]


@dataclass(frozen=True, eq=False)
class Origin:
    """Source places that survive expansion, as arrays.

    ``site`` and ``context`` have one entry an operation. A site is a place: characters ``starts``
    to ``ends`` of the source. A context is one variable's value (``variables``, ``values``) inside
    an enclosing context (``parents``; -1 is none), so that the loops around an operation are the
    chain from its context outwards.
    """

    source: Source
    site: np.ndarray
    context: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    parents: np.ndarray
    variables: np.ndarray
    values: np.ndarray
    names: tuple[str, ...]

    def span(self, index: int) -> Span:
        """The place of an operation in the source."""
        site = int(self.site[index])
        return Span(self.source, int(self.starts[site]), int(self.ends[site]))

    def bindings(self, index: int) -> dict[str, int]:
        """The loop variables and arguments around an operation, outermost first."""
        found: list[tuple[str, int]] = []
        context = int(self.context[index])
        while context >= 0:
            found.append((self.names[self.variables[context]], int(self.values[context])))
            context = int(self.parents[context])
        return dict(reversed(found))
