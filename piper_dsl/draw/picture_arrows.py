"""Results that go from rank to rank, as thin arrows."""

from __future__ import annotations

from collections.abc import Iterator

from .frame import Frame
from .picture_boxes import box_name
from .scene import Scene
from .shapes import Arrow
from .transfers import find_messages

__all__ = ["arrow_shapes", "too_many_arrows"]

_MOST_ARROWS = 2_000
_ASIDE = 1.5
_SEEN_THROUGH = "70"
"""The opacity, in hexadecimal, of what crosses the lanes of other ranks, whose labels should be read."""


def too_many_arrows(scene: Scene) -> str:
    """What to say where the arrows are left out; empty where they are drawn."""
    count = len(find_messages(scene))
    return f"{count} transfers are too many to draw: choose a window" if count > _MOST_ARROWS else ""


def arrow_shapes(scene: Scene, frame: Frame) -> Iterator[Arrow]:
    """From when a message leaves to when it arrives, between the facing edges of the lanes."""
    found, moves = find_messages(scene), scene.timeline.moves
    if len(found) > _MOST_ARROWS:
        return
    color = scene.view.theme.arrow
    columns = (moves.producer, moves.consumer, moves.start, moves.end)
    for producer, consumer, start, end in zip(*(column[found].tolist() for column in columns), strict=True):
        sender, receiver = (scene.row_of[int(scene.schedule.rank[index])] for index in (producer, consumer))
        down = sender < receiver
        tail = frame.bottom(sender) + (0.0 if down else frame.lane)
        head = frame.bottom(receiver) + (frame.lane if down else 0.0)
        # A little to either side, so that an arrow shows to which of two neighbours it belongs.
        ends = (frame.x(start) - _ASIDE, tail), (frame.x(end) + _ASIDE, head)
        own = color if abs(sender - receiver) == 1 else color + _SEEN_THROUGH
        look = {"color": own, "penwidth": "0.6", "arrowsize": "0.35"}
        yield Arrow(box_name(scene, producer), box_name(scene, consumer), *ends, look)
