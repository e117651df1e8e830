"""What a valid schedule is, straight from semantics.md section 1: sets, counts, and a search for cycles."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

TOKEN = re.compile(r"(\d+)([A-Z_]+?)(\d*)")
Key = tuple[str, int, int | None]


def key(token: str) -> Key:
    """`2F1` is ("F", 2, 1)."""
    stage, kind, microbatch = TOKEN.fullmatch(token).groups()  # type: ignore[union-attr]
    return kind, int(stage), int(microbatch) if microbatch else None


@dataclass(frozen=True)
class Sizes:
    """``home[s]`` is the rank of stage ``s``; the stage graph is a chain."""

    microbatches: int
    home: tuple[int, ...]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return [(stage, i) for stage in range(len(self.home)) for i in range(self.microbatches)]


def is_valid(rows: list[list[str]], sizes: Sizes) -> bool:
    """Complete and without a circle of waiting. ``rows`` are the tokens of every rank, in order."""
    return _complete(rows, sizes) and not _has_cycle(rows, sizes)


def _complete(rows: list[list[str]], sizes: Sizes) -> bool:
    placed = [(key(token), rank) for rank, row in enumerate(rows) for token in row]
    count = Counter(operation for operation, _ in placed)
    for (kind, stage, microbatch), rank in placed:
        in_range = stage < len(sizes.home) and (microbatch is None or microbatch < sizes.microbatches)
        if not in_range or sizes.home[stage] != rank or (kind == "OPT") != (microbatch is None):
            return False
    trains = any(kind in "BIW" for kind, _, _ in count)
    for stage, i in sizes.pairs:
        backward = tuple(count[kind, stage, i] for kind in "BIW")
        allowed = [(1, 0, 0), (0, 1, 1)] if trains else [(0, 0, 0)]
        if count["F", stage, i] != 1 or backward not in allowed:
            return False
    steps = {count["OPT", stage, None] for stage in range(len(sizes.home))}
    return steps == {0} or (steps == {1} and trains)


def _needs(operation: Key, present: set[Key], sizes: Sizes) -> set[Key]:
    kind, stage, i = operation
    if kind == "F":
        wanted = {("F", stage - 1, i)}
    elif kind in ("B", "I"):
        wanted = {("F", stage, i), ("B", stage + 1, i), ("I", stage + 1, i)}
    elif kind == "W":
        wanted = {("I", stage, i)}
    else:
        wanted = {(half, stage, j) for half in "BW" for j in range(sizes.microbatches)}
    return wanted & present


def _has_cycle(rows: list[list[str]], sizes: Sizes) -> bool:
    operations = [[key(token) for token in row] for row in rows]
    present = {operation for row in operations for operation in row}
    before = {operation: _needs(operation, present, sizes) for operation in present}
    for row in operations:
        for one, two in pairwise(row):
            before[two] = before[two] | {one}
    state: dict[Key, str] = {}
    for start in before:
        stack = [(start, iter(before[start]))] if start not in state else []
        while stack:
            state[stack[-1][0]] = "open"
            for needed in stack[-1][1]:
                if state.get(needed) == "open":
                    return True
                if needed not in state:
                    stack.append((needed, iter(before[needed])))
                    break
            else:
                state[stack.pop()[0]] = "closed"
    return False
