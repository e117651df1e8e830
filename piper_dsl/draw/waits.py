"""The arrows of a deadlock: what waits for what."""

from __future__ import annotations

from .shapes import Arrow, Shape
from .theme import Theme

__all__ = ["meets", "waits_for"]

_ASIDE = 0.2
"""The share of a box by which the ways down and up are apart."""


def waits_for(one: Shape, other: Shape, theme: Theme) -> Arrow:
    """From an operation to the one it waits for: along the row to the left, above the row to the right, else across."""
    if one.y == other.y and one.x > other.x:
        ends = (one.x - one.width / 2, one.y), (other.x + other.width / 2, other.y)
        return Arrow(one.name, other.name, *ends, _look(theme))
    if one.y == other.y:
        ends = (one.x, one.y + one.height / 2), (other.x, other.y + other.height / 2)
        return Arrow(one.name, other.name, *ends, _look(theme), bend=one.height)
    return Arrow(one.name, other.name, *_across(one, other), _look(theme))


def meets(send: Shape, receive: Shape, theme: Theme) -> Arrow:
    """Between the two ends of one transfer, which wait for each other."""
    return Arrow(send.name, receive.name, *_across(send, receive), {**_look(theme), "dir": "none", "style": "dashed"})


def _across(one: Shape, other: Shape) -> tuple[tuple[float, float], tuple[float, float]]:
    down = 1 if one.y > other.y else -1
    shift = _ASIDE * one.width * down
    return (one.x + shift, one.y - down * one.height / 2), (other.x + shift, other.y + down * other.height / 2)


def _look(theme: Theme) -> dict[str, str]:
    return {"color": theme.alarm, "penwidth": "1.3", "arrowsize": "0.6"}
