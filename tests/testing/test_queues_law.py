"""The law of transfers: the checker and the interpreter of blocking queues agree on every order."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from itertools import product
from math import prod

import pytest
from queues_tokens import programs

from piper_dsl import PipeError, Source, check
from piper_dsl.expand import expand
from piper_dsl.ir.schedule import Schedule
from piper_dsl.syntax import parse
from piper_dsl.testing import interpret

TRANSPORTS = ("buffered", "capacity=1", "capacity=2", "direction", "pair", "rank", "blocking")
EVERYTHING = bool(os.environ.get("PIPER_EXHAUSTIVE"))
"""With all 122,500 orders of two ranks and two microbatches, which takes about half an hour."""
LIMIT = pytest.mark.timeout(0 if EVERYTHING else 120)


def orders(items: frozenset[str], before: frozenset[tuple[str, str]]) -> Iterator[tuple[str, ...]]:
    """Every order of the items in which the first of each pair comes before the second."""
    if not items:
        yield ()
    for item in sorted(items):
        if not any(second == item and first in items for first, second in before):
            for rest in orders(items - {item}, before):
                yield (item, *rest)


def rank_steps(stage: int, stages: int, microbatches: int) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """What the rank of a stage does, one stage a rank, and what of it must come before what."""
    items: set[str] = set()
    before: set[tuple[str, str]] = set()
    for i in range(microbatches):
        forward, backward = f"{stage}F{i}", f"{stage}B{i}"
        items |= {forward, backward}
        before.add((forward, backward))
        if stage:
            items |= {f"{stage}RECV_F{i}", f"{stage}SEND_B{i}"}
            before |= {(f"{stage}RECV_F{i}", forward), (backward, f"{stage}SEND_B{i}")}
        if stage < stages - 1:
            items |= {f"{stage}SEND_F{i}", f"{stage}RECV_B{i}"}
            before |= {(forward, f"{stage}SEND_F{i}"), (f"{stage}RECV_B{i}", backward)}
    return frozenset(items), frozenset(before)


def schedule_of(rows: tuple[str, ...]) -> Schedule:
    """Rows of tokens as a schedule."""
    bodies = "".join(f"rank {rank}: {row}\n" for rank, row in enumerate(rows))
    count = max(int(token.lstrip("0123456789").lstrip("FBSENDRCV_")) for row in rows for token in row.split()) + 1
    text = f"ranks {len(rows)}\nmicrobatches {count}\n{bodies}"
    try:
        return expand(parse(Source("law.pipe", text)))
    except PipeError as error:
        raise AssertionError(f"not a schedule: {error}\n{text}") from error


def agree(rows: tuple[str, ...]) -> set[bool]:
    """Compares the verdicts on all transports; returns them."""
    schedule, steps, verdicts = schedule_of(rows), programs(list(rows)), set()
    for transport in TRANSPORTS:
        outcome = interpret(steps, transport)
        runs = outcome.completed and not outcome.wrong
        assert (not check(schedule, transport)) == runs, (transport, rows, outcome.stuck, outcome.wrong)
        verdicts.add(runs)
    return verdicts


def sampled(ranks: int, microbatches: int, count: int) -> Iterator[tuple[str, ...]]:
    """Every combination of the ranks' orders; where there are more, ``count`` of them, always the same."""
    rows = [[" ".join(order) for order in orders(*rank_steps(r, ranks, microbatches))] for r in range(ranks)]
    if EVERYTHING or prod(map(len, rows)) <= count:
        yield from product(*rows)
    else:
        chance = random.Random(0)
        yield from (tuple(chance.choice(row) for row in rows) for _ in range(count))


@LIMIT
@pytest.mark.parametrize(("ranks", "microbatches", "count"), [(2, 1, 5), (3, 1, 50), (2, 2, 400)])
def test_checker_and_interpreter_agree(ranks: int, microbatches: int, count: int) -> None:
    verdicts = set()
    for rows in sampled(ranks, microbatches, count):
        verdicts |= agree(rows)
    assert verdicts == {True, False}


def random_order(chance: random.Random, items: frozenset[str], before: frozenset[tuple[str, str]]) -> str:
    left, found = set(items), []
    while left:
        free = sorted(i for i in left if not any(second == i and first in left for first, second in before))
        found.append(chance.choice(free))
        left.remove(found[-1])
    return " ".join(found)


@pytest.mark.parametrize("seed", range(20))
def test_they_agree_on_larger_ones(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        ranks, microbatches = chance.choice([(3, 2), (4, 2), (2, 4), (3, 3)])
        agree(tuple(random_order(chance, *rank_steps(rank, ranks, microbatches)) for rank in range(ranks)))


def grouped(chance: random.Random, row: str) -> str:
    """The row with some neighbouring transfers made one group."""
    tokens = row.split()
    found = [tokens[0]]
    for token in tokens[1:]:
        together = "_" in found[-1].split(" & ")[-1] and "_" in token and chance.random() < 0.6
        found[-1:] = [f"{found[-1]} & {token}"] if together else [found[-1], token]
    return "  ".join(found)


@pytest.mark.parametrize("seed", range(120))
def test_they_agree_on_groups(seed: int) -> None:
    chance = random.Random(seed)
    ranks, microbatches = chance.choice([(2, 2), (3, 2), (2, 3)])
    rows = [grouped(chance, random_order(chance, *rank_steps(rank, ranks, microbatches))) for rank in range(ranks)]
    braces = [
        " ".join("{" + slot.replace(" & ", " ") + "}" if "&" in slot else slot for slot in row.split("  "))
        for row in rows
    ]
    for transport in TRANSPORTS:
        outcome = interpret(programs(braces), transport)
        bodies = "".join(f"rank {rank}: {row}\n" for rank, row in enumerate(rows))
        text = f"ranks {ranks}\nmicrobatches {microbatches}\n{bodies}"
        runs = not check(expand(parse(Source("law.pipe", text))), transport)
        assert runs == (outcome.completed and not outcome.wrong), (transport, text, outcome.stuck)
