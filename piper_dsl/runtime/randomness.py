"""Random numbers of stages, which depend on seed, step, stage and microbatch alone, and of loaders, apart from them.

So a microbatch meets the same dropout under every schedule and on every target, and when it is recomputed; and
several processes that draw the same batches, at random but seeded, go on to draw the same ones.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

__all__ = ["OwnRandomness", "seed_generators"]


def seed_generators(seed: int, step: int, stage: int, microbatch: int) -> None:
    """Seeds torch's generators for one forward: that of the CPU and that of the GPU in use, if there is one."""
    words = struct.pack("<4q", seed, step, stage, microbatch)
    mixed = int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "little")
    # torch.manual_seed looks after every kind of device there might be, which takes longer than a small stage.
    torch.default_generator.manual_seed(mixed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(mixed)


class OwnRandomness:
    """The generators of torch (on the CPU), numpy and Python, as if nobody else drew from them.

    What is drawn first is not foreseeable, unless who draws has seeded them.
    """

    def __init__(self) -> None:
        self._states: tuple[Any, ...] | None = None

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Inside it, drawing goes on where it was; outside, nothing of that is seen."""
        outer = _states()
        self._begin()
        try:
            yield
        finally:
            self._states = _states()
            _set_states(outer)

    def _begin(self) -> None:
        if self._states is not None:
            _set_states(self._states)
            return
        torch.default_generator.seed()
        np.random.seed()
        random.seed()


def _states() -> tuple[Any, ...]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def _set_states(states: tuple[Any, ...]) -> None:
    of_torch, of_numpy, of_python = states
    torch.set_rng_state(of_torch)
    np.random.set_state(of_numpy)
    random.setstate(of_python)
