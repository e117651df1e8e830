"""What the reader of a picture chose: the look, what is drawn besides the boxes, and the window."""

from __future__ import annotations

from dataclasses import dataclass

from .theme import LIGHT, Theme

__all__ = ["View"]


@dataclass(frozen=True)
class View:
    """How a timeline is shown.

    ``transfers`` draws an arrow for every result that another rank needs, ``critical_path`` outlines the
    chain that decides the makespan, ``memory`` adds the activations held under every lane. ``start`` and
    ``end`` (in the unit of the costs) and ``ranks`` cut out a window; None shows all.
    """

    theme: Theme = LIGHT
    transfers: bool = False
    critical_path: bool = False
    memory: bool = False
    start: float | None = None
    end: float | None = None
    ranks: tuple[int, ...] | None = None
