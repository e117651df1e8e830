"""Half a megabyte of English: the reference topics of Python's own documentation."""

from __future__ import annotations

from collections.abc import Iterator
from pydoc_data.topics import topics

import torch

from .gpt import CONTEXT

__all__ = ["batches", "text"]


def text() -> torch.Tensor:
    """The topics, one after another, as bytes: int64 of shape (length,)."""
    data = "\n\n".join(topics[name] for name in sorted(topics)).encode("utf-8")
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).long()


def batches(size: int, seed: int = 0) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Endless (inputs, targets), int64 of shape (size, CONTEXT): windows drawn at random, targets one byte on."""
    data = text()
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(data) - CONTEXT - 1, (size,), generator=generator)
        windows = torch.stack([data[start : start + CONTEXT + 1] for start in starts.tolist()])
        yield windows[:, :-1], windows[:, 1:]
