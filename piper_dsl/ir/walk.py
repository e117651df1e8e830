"""Running a schedule in thought: every rank goes on as far as its needs are met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .needs import Needs

__all__ = ["Walk", "walk"]


@dataclass(frozen=True)
class Walk:
    """``order`` lists what ran, each after what it needs; ``heads[r]`` counts what rank ``r`` ran."""

    order: list[int]
    heads: list[int]


def walk(rows: Sequence[Sequence[int]], needs: Needs) -> Walk:
    """Runs rows of nodes (operations or slots), each in order, until all ran or all wait.

    The order is complete exactly if row order and needs together have no cycle. Linear time.
    """
    offsets, sources = needs.offsets.tolist(), needs.sources.tolist()
    done = bytearray(len(offsets) - 1)
    waiting: dict[int, list[int]] = {}
    heads = [0] * len(rows)
    order: list[int] = []
    ready = list(range(len(rows) - 1, -1, -1))
    while ready:
        rank = ready.pop()
        row = rows[rank]
        for head in range(heads[rank], len(row)):
            node = row[head]
            missing = next((s for s in sources[offsets[node] : offsets[node + 1]] if not done[s]), None)
            if missing is not None:
                waiting.setdefault(missing, []).append(rank)
                heads[rank] = head
                break
            done[node] = 1
            order.append(node)
            if node in waiting:
                ready += waiting.pop(node)
        else:
            heads[rank] = len(row)
    return Walk(order, heads)
