"""The messages between ranks that a picture shows."""

from __future__ import annotations

import numpy as np

from .scene import Scene

__all__ = ["find_messages"]


def find_messages(scene: Scene) -> np.ndarray:
    """Places in the timeline's ``moves`` (int64): those whose producer and consumer are both shown."""
    moves = scene.timeline.moves
    shown = np.zeros(len(scene.schedule), dtype=bool)
    shown[scene.shown] = True
    return np.flatnonzero(shown[moves.producer] & shown[moves.consumer])
