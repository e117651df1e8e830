"""The order of every rank is that of the reference, operation by operation; OPT is ours alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import piper_dsl as piper

REPOSITORY = Path(__file__).parents[2]
REFERENCE = json.loads((REPOSITORY / "tests" / "data" / "reference_orders.json").read_text(encoding="utf-8"))
SAME = {
    "gpipe": "gpipe",
    "1f1b": "1f1b",
    "eager_1f1b": "eager_1f1b",
    "interleaved_1f1b_v2": "interleaved_1f1b",
    "looped_bfs_v2": "looped_bfs",
    "zb_h1": "zb_h1",
    "zb_h2": "zb_h2",
    "interleaved_zb_v2": "interleaved_zb",
    "zb_v": "zb_v",
    "v_half": "v_half",
    "v_min": "v_min",
    "1f1b_v": "1f1b_v",
    "dualpipev": "dualpipev",
    "dualpipe": "dualpipe",
    "hanayo_w1": "hanayo",
    "hanayo_w1_n4": "hanayo",
}


def tokens(schedule: piper.Schedule, rank: int) -> list[str]:
    """A row in PyTorch's tokens, without OPT."""
    row: list[str] = []
    first = int(schedule.offsets[rank])
    for index, operation in enumerate(schedule.row(rank), first):
        if schedule.joined[index]:
            row[-1] = f"({row[-1]};{operation})OVERLAP_F_B"
        elif operation.kind != piper.Kind.OPT:
            row.append(str(operation))
    return row


@pytest.mark.parametrize(
    ("reference", "name"), [*SAME.items(), ("interleaved_1f1b_v2", "megatron_interleaved")], ids=lambda value: value
)
def test_order(reference, name):
    expected = REFERENCE[reference]
    schedule = piper.load(str(REPOSITORY / "schedules" / f"{name}.pipe"), p=expected["p"], m=expected["m"])
    for rank in range(schedule.ranks):
        assert tokens(schedule, rank) == expected["ranks"][rank], f"rank {rank}"
    assert [tokens(schedule, rank) for rank in range(schedule.ranks)] == expected["ranks"]
