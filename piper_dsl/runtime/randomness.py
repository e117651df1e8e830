"""Random numbers that depend on the seed, step, stage and microbatch, and on nothing else.

So a microbatch meets the same dropout under every schedule and on every target, and when it is recomputed.
"""

from __future__ import annotations

import hashlib
import struct

import torch

__all__ = ["seed_generators"]


def seed_generators(seed: int, step: int, stage: int, microbatch: int) -> None:
    """Seeds torch's generators for one forward: that of the CPU and that of the GPU in use, if there is one."""
    words = struct.pack("<4q", seed, step, stage, microbatch)
    mixed = int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "little")
    # torch.manual_seed looks after every kind of device there might be, which takes longer than a small stage.
    torch.default_generator.manual_seed(mixed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(mixed)
