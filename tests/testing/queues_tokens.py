"""Rows of PyTorch's tokens, transfers included, as programs of the interpreter; the chain of stages only."""

from __future__ import annotations

import re

from piper_dsl.testing import Action, Compute, Group, Recv, Send, Transfer

_TOKEN = re.compile(r"(\d+)(SEND_|RECV_)?([A-Z_]+?)(\d+)?")


def programs(rows: list[str]) -> list[list[Action]]:
    """One program per row, such as ``0F0 {0SEND_F0 0RECV_B0} 0B0``; a stage is on the rank that computes it."""
    words = [re.findall(r"\{[^}]*\}|\S+", row) for row in rows]
    parsed = [[[_parse(token) for token in re.findall(r"\w+", word)] for word in row] for row in words]
    rank_of = {
        stage: rank
        for rank, row in enumerate(parsed)
        for word in row
        for stage, transfer, kind, _ in word
        if not transfer and kind in "FBI"
    }
    computed = [{f"{s}{k}{i}" for word in row for s, t, k, i in word if not t} for row in parsed]
    last = max(rank_of)
    return [[_action(word, rank_of, computed[rank], rank, last) for word in row] for rank, row in enumerate(parsed)]


def _parse(token: str) -> tuple[int, str, str, str]:
    match = _TOKEN.fullmatch(token)
    assert match, token
    return int(match[1]), match[2] or "", match[3], match[4] or ""


def _action(
    word: list[tuple[int, str, str, str]], rank_of: dict[int, int], computed: set[str], rank: int, last: int
) -> Action:
    actions = [_one(*token, rank_of, computed, rank, last) for token in word]
    if len(actions) == 1:
        return actions[0]
    return Group(tuple(action for action in actions if isinstance(action, Send | Recv)))


def _one(
    stage: int,
    transfer: str,
    kind: str,
    microbatch: str,
    rank_of: dict[int, int],
    computed: set[str],
    rank: int,
    last: int,
) -> Action:
    step = 1 if kind == "F" else -1
    if transfer == "SEND_":
        moved = Transfer(kind, stage, stage + step, int(microbatch))
        made = [f"{stage}{kind}{microbatch}"] if kind == "F" else [f"{stage}{k}{microbatch}" for k in "BI"]
        producer = next((name for name in made if name in computed), None)
        return Send(moved, rank_of[stage + step], producer)
    if transfer == "RECV_":
        return Recv(Transfer(kind, stage - step, stage, int(microbatch)), rank_of[stage - step])
    needs, arrivals = _needs(stage, kind, microbatch, rank_of, computed, rank, last)
    return Compute(f"{stage}{kind}{microbatch}", needs, arrivals)


def _needs(
    stage: int, kind: str, microbatch: str, rank_of: dict[int, int], computed: set[str], rank: int, last: int
) -> tuple[tuple[str, ...], tuple[Transfer, ...]]:
    needs: list[str] = []
    arrivals: list[Transfer] = []
    if kind == "F" and stage > 0:
        if rank_of[stage - 1] == rank:
            needs.append(f"{stage - 1}F{microbatch}")
        else:
            arrivals.append(Transfer("F", stage - 1, stage, int(microbatch)))
    if kind in ("B", "I"):
        needs.append(f"{stage}F{microbatch}")
        if stage < last:
            if rank_of[stage + 1] == rank:
                needs.append(next(n for k in "BI" if (n := f"{stage + 1}{k}{microbatch}") in computed))
            else:
                arrivals.append(Transfer("B", stage + 1, stage, int(microbatch)))
    if kind == "W":
        needs.append(f"{stage}I{microbatch}")
    return tuple(needs), tuple(arrivals)
