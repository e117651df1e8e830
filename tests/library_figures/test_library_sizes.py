"""Every size that a family allows checks, in the memory its header states; every other is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import piper_dsl as piper
from piper_dsl.expand import expand
from piper_dsl.library import read_source
from piper_dsl.syntax import parse, tree

SCHEDULES = Path(__file__).parents[2] / "schedules"
RANKS, MICROBATCHES = range(1, 9), range(1, 17)
SOME_RANKS, SOME_MICROBATCHES = (1, 3, 4, 7), (1, 2, 5, 8, 11, 16)


def per_round(p: int, m: int) -> int:
    return m // max(1, m // p)


def rounds_are_equal(p: int, m: int) -> bool:
    return m % max(1, m // p) == 0


def groups_are_large(p: int, m: int, n: int) -> bool:
    return p <= n <= m and (m % n == 0 or m % n >= p)


def chimera_peak(r: int, p: int, m: int) -> int:
    near, far = ((m + 1) // 2, m // 2) if r < p // 2 else (m // 2, (m + 1) // 2)
    return min(near, p // 2) + min(far, min(r, p - 1 - r) + 1)


@dataclass(frozen=True)
class Family:
    """What a file promises. ``peak`` is exact per rank, ``bound`` what no rank exceeds."""

    peak: Callable[..., int] | None = None
    bound: Callable[..., int] | None = None
    allows: Callable[..., bool] = lambda p, m: True
    chunks: tuple[int, ...] = ()


FAMILIES = {
    "gpipe": Family(lambda r, p, m: m),
    "1f1b": Family(lambda r, p, m: min(p - r, m)),
    "eager_1f1b": Family(lambda r, p, m: min(2 * (p - 1 - r) + 1, m)),
    "zb_h1": Family(lambda r, p, m: min(p, m)),
    "zb_h2": Family(lambda r, p, m: min(2 * p - 1, m)),
    "forward_only": Family(lambda r, p, m, v: 1, chunks=(1, 2, 3)),
    "looped_bfs": Family(lambda r, p, m, v: v * m, chunks=(2, 1, 3)),
    "interleaved_1f1b": Family(
        lambda r, p, m, v: min((v - 1) * per_round(p, m) + 2 * (p - 1 - r) + 1, v * m),
        allows=rounds_are_equal,
        chunks=(2, 1, 3),
    ),
    "interleaved_zb": Family(
        lambda r, p, m, v: min((v - 1) * per_round(p, m) + p, v * m), allows=rounds_are_equal, chunks=(2, 1, 3)
    ),
    "zb_v": Family(lambda r, p, m: min(2 * p, 2 * m, m + 1 + r)),
    "1f1b_v": Family(bound=lambda p, m: min(2 * (2 * p // 3 + 1), 2 * m)),
    "v_half": Family(bound=lambda p, m: min(2 * ((p + 2) // 2), 2 * m)),
    "v_min": Family(bound=lambda p, m: min(2 * ((p + 4) // 3), 2 * m)),
    "dualpipe": Family(lambda r, p, m: p + 1, allows=lambda p, m: p % 2 == 0 and m % 2 == 0 and m >= 2 * p),
    "dualpipev": Family(lambda r, p, m: 2 * p + 1, allows=lambda p, m: m >= 2 * p),
    "chimera": Family(chimera_peak, allows=lambda p, m: p % 2 == 0),
}


def peaks(schedule: piper.Schedule) -> list[int]:
    """Per rank, the most activations that live from F to B or W; in a slot, the new one comes first."""
    kind, found = schedule.kind, []
    if not np.isin(kind, (piper.Kind.B, piper.Kind.W)).any():
        return [1] * schedule.ranks
    for start, end in zip(schedule.offsets[:-1], schedule.offsets[1:], strict=True):
        row = kind[start:end]
        step = (row == piper.Kind.F).astype(int) - np.isin(row, (piper.Kind.B, piper.Kind.W))
        found.append(int(np.cumsum(step).max()))
    return found


@cache
def parsed(name: str) -> tree.File:
    return parse(read_source(str(SCHEDULES / f"{name}.pipe")))


def load(name: str, parameters: dict[str, int]) -> piper.Schedule:
    return expand(parsed(name), parameters)


def accepted(name: str, parameters: dict[str, int]) -> piper.Schedule:
    schedule = load(name, parameters)
    assert piper.check(schedule) == (), (name, parameters)
    return schedule


def refusal(name: str, parameters: dict[str, int]) -> tuple[piper.Diagnostic, ...]:
    with pytest.raises(piper.PipeError) as caught:
        load(name, parameters)
    return caught.value.diagnostics


def sizes(family: Family) -> Iterator[dict[str, int]]:
    """All of them for the usual number of chunks, some for the others."""
    for p, m in product(RANKS, MICROBATCHES):
        yield {"p": p, "m": m} | ({"v": family.chunks[0]} if family.chunks else {})
    for v, p, m in product(family.chunks[1:], SOME_RANKS, SOME_MICROBATCHES):
        yield {"p": p, "m": m, "v": v}


@pytest.mark.parametrize("name", FAMILIES)
def test_allowed_sizes_check_in_the_stated_memory(name):
    family = FAMILIES[name]
    for parameters in sizes(family):
        p, m = parameters["p"], parameters["m"]
        if not family.allows(p, m):
            continue
        found = peaks(accepted(name, parameters))
        if family.peak is not None:
            assert found == [family.peak(r, **parameters) for r in range(p)], parameters
        if family.bound is not None:
            assert max(found) <= family.bound(p, m), parameters
            assert max(found) == family.bound(p, m) or m < 2 * p, parameters


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.allows is not Family.allows])
def test_other_sizes_are_refused_by_a_rule(name):
    family = FAMILIES[name]
    for p, m in product(RANKS, (*SOME_MICROBATCHES, 7, 9, 10, 15)):
        if not family.allows(p, m):
            findings = refusal(name, {"p": p, "m": m})
            assert {finding.code for finding in findings} == {"P216"}
            assert all(f"p = {p}" in finding.message or f"m = {m}" in finding.message for finding in findings)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 6, 8])
def test_megatron_groups(p):
    for m, v in product((1, 3, 4, 7, 8, 12, 16), (2, 3)):
        for n in range(max(1, p - 1), m + 2):
            parameters = {"p": p, "m": m, "v": v, "n": n}
            if groups_are_large(p, m, n):
                expected = [min((v - 1) * n + 2 * (p - 1 - r) + 1, v * m) for r in range(p)]
                assert peaks(accepted("megatron_interleaved", parameters)) == expected, parameters
            elif v == 2 and n in (p - 1, m + 1):
                assert {finding.code for finding in refusal("megatron_interleaved", parameters)} == {"P216"}


@pytest.mark.parametrize("p", RANKS)
def test_hanayo_groups(p):
    for m, v in product(MICROBATCHES, (2, 4)):
        for n in {p, max(p, m)} if v == 2 or m in SOME_MICROBATCHES else ():
            group = min(n, m)
            expected = [(v - 1) * group + min(group, n - p + r + 1) for r in range(p)]
            assert peaks(accepted("hanayo", {"p": p, "m": m, "v": v, "n": n})) == expected


@pytest.mark.parametrize(
    ("name", "parameters", "messages", "help_"),
    [
        (
            "interleaved_1f1b",
            {"p": 4, "m": 9},
            ["microbatches run in m // p equal rounds: m must be a multiple of m // p (p = 4, m = 9)"],
            "m = 8 or 10",
        ),
        (
            "interleaved_zb",
            {"p": 4, "m": 9},
            ["microbatches run in m // p equal rounds: m must be a multiple of m // p (p = 4, m = 9)"],
            "m = 8 or 10",
        ),
        (
            "megatron_interleaved",
            {"p": 6, "m": 3, "v": 2},
            ["this schedule needs at least as many microbatches as ranks (m >= p) (p = 6, m = 3)"],
            "m = 6",
        ),
        (
            "megatron_interleaved",
            {"p": 4, "m": 8, "n": 3},
            ["a group must have p to m microbatches (p <= n <= m) (p = 4, m = 8, n = 3)"],
            "n = 4",
        ),
        (
            "megatron_interleaved",
            {"p": 4, "m": 9, "n": 4},
            ["the last group, m % n microbatches, must be empty or at least p (p = 4, m = 9, n = 4)"],
            "m = 8 or 12",
        ),
        ("zb_v", {"p": 4, "v": 3}, ["ZB-V folds the model once: it has exactly 2 stages per rank (v = 3)"], "v = 2"),
        ("1f1b_v", {"v": 1}, ["1F1B-V folds the model once: it has exactly 2 stages per rank (v = 1)"], "v = 2"),
        ("v_half", {"v": 1}, ["V-Half folds the model once: it has exactly 2 stages per rank (v = 1)"], "v = 2"),
        ("v_min", {"v": 4}, ["V-Min folds the model once: it has exactly 2 stages per rank (v = 4)"], "v = 2"),
        (
            "dualpipev",
            {"p": 4, "m": 7},
            ["DualPipeV needs at least 2 microbatches per rank (m >= 2 p) (p = 4, m = 7)"],
            "p = 3; or m = 8",
        ),
        (
            "dualpipev",
            {"p": 4, "m": 8, "v": 3},
            ["DualPipeV folds the model once: it has exactly 2 stages per rank (v = 3)"],
            "v = 2",
        ),
        (
            "dualpipe",
            {"p": 3, "m": 8},
            ["DualPipe runs from both ends to the middle: it needs an even number of ranks (p = 3)"],
            "p = 2 or 4",
        ),
        (
            "dualpipe",
            {"p": 4, "m": 9},
            ["DualPipe sends half of the microbatches from either end: m must be even (m = 9)"],
            "m = 8 or 10",
        ),
        (
            "dualpipe",
            {"p": 4, "m": 6},
            ["DualPipe needs at least 2 microbatches per rank (m >= 2 p) (p = 4, m = 6)"],
            "p = 2; or m = 8",
        ),
        (
            "chimera",
            {"p": 5},
            ["Chimera runs from both ends to the middle: it needs an even number of ranks (p = 5)"],
            "p = 4 or 6",
        ),
        (
            "hanayo",
            {"v": 3},
            ["a wave goes down the ranks and back up: v, 2 chunks for every wave, must be even (v = 3)"],
            "v = 2 or 4",
        ),
        (
            "hanayo",
            {"p": 4, "n": 3},
            ["a group must have at least as many microbatches as ranks (n >= p) (p = 4, n = 3)"],
            "p = 3; or n = 4",
        ),
    ],
)
def test_refusals_say_the_reason_and_what_would_do(name, parameters, messages, help_):
    findings = refusal(name, parameters)
    assert [finding.message for finding in findings] == messages
    assert {finding.code for finding in findings} == {"P216"}
    assert findings[0].help is not None
    assert help_ in findings[0].help


def test_every_schedule_of_the_library_is_here():
    elsewhere = {"megatron_interleaved", "hanayo"}
    assert {path.stem for path in SCHEDULES.glob("*.pipe")} == set(FAMILIES) | elsewhere
