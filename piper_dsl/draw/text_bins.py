"""Busy shares as text: one line a rank, one block character a column."""

from __future__ import annotations

import math

import numpy as np

from ..ir.operations import Kind
from .palette import paint
from .text_lanes import IDLE, Piece

__all__ = ["bin_pieces"]

_BLOCKS = IDLE + "▁▂▃▄▅▆▇█"
_SEEN = 1e-6
_FULL = 1 - 1 / 64


def bin_pieces(shares: np.ndarray) -> list[Piece]:
    """The line of a rank from its shares by kind and bin, (len(Kind), bins): height says busy, colour the main kind."""
    busy, main = shares.sum(axis=0).tolist(), shares.argmax(axis=0).tolist()
    return [(_block(share), paint(Kind(kind)).fill) for share, kind in zip(busy, main, strict=True)]


def _block(share: float) -> str:
    """The height in eighths. Rounded up, so that a little work is seen, but only what is full looks full."""
    eighths = math.ceil(share * 8 - _SEEN)
    return _BLOCKS[min(max(eighths, 0), 8 if share > _FULL else 7)]
