"""Measured timelines in files: what is written is read back, and what is none is refused with what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from piper_dsl.diagnostics import PipeError, Source
from piper_dsl.expand import expand
from piper_dsl.ir.memory import Memory
from piper_dsl.library import library_names, load
from piper_dsl.simulate import Costs, read_timeline, simulate, timeline_json
from piper_dsl.simulate.measured import measured_timeline
from piper_dsl.syntax import parse

COSTS = Costs(F=[0.011, 0.012], B=0.02, latency=0.001, overhead=0.0005)


def _measured(**costs: Any):
    schedule = load("1f1b", p=2, m=3)
    timeline = simulate(schedule, COSTS.changed(**costs))
    return measured_timeline(schedule, timeline.start, timeline.end, timeline.costs)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "measured.json"


@pytest.mark.parametrize("name", library_names())
def test_every_schedule_of_the_library_is_read_back(name: str, path: Path) -> None:
    schedule = load(name, p=4, m=8)
    predicted = simulate(schedule, Costs(latency=0.1))
    shorter = np.random.default_rng(7).uniform(0.0, 0.9, len(schedule.slots.first) - 1)[schedule.slot]
    ended = predicted.end - shorter * (predicted.end - predicted.start)
    written = measured_timeline(schedule, predicted.start, ended, predicted.costs)
    path.write_text(timeline_json(written), encoding="utf-8")
    read = read_timeline(str(path))
    assert read.measured
    assert read.start.tolist() == written.start.tolist()
    assert read.end.tolist() == written.end.tolist()
    assert read.schedule.parameters == schedule.parameters
    assert [read.schedule.row(r) for r in range(4)] == [schedule.row(r) for r in range(4)]
    assert (read.schedule.name, read.peak_memory, read.bubble) == (schedule.name, written.peak_memory, written.bubble)


@pytest.mark.parametrize(
    "costs",
    [{}, {"bandwidth": 5.0, "memory": Memory(output=2.0, activation=[1.0, 3.0], released_at_input=0.5)}, {"F&B": 2.5}],
)
def test_costs_are_read_back(costs: dict[str, Any], path: Path) -> None:
    written = _measured(**costs)
    path.write_text(timeline_json(written), encoding="utf-8")
    read = read_timeline(str(path)).costs
    assert read.kinds == written.costs.kinds
    assert (read.latency, read.overhead, read.bandwidth) == (0.001, 0.0005, costs.get("bandwidth", float("inf")))
    assert read.memory.sizes(2)["activation"].tolist() == written.costs.memory.sizes(2)["activation"].tolist()
    assert read.memory.released_at_input == written.costs.memory.released_at_input


def test_a_file_that_is_not_there(path: Path) -> None:
    with pytest.raises(PipeError, match=r"cannot read .*measured.json: No such file"):
        read_timeline(str(path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Expecting value: line 1 column 1"),
        ("ranks 2", "Expecting value"),
        ("[" * 100_000, "recursion"),
        ("[]", "this is no measured timeline"),
        ("{}", "this is no measured timeline"),
        ('{"traceEvents": []}', "a trace is for Perfetto"),
        ('{"piper-dsl": "measured timeline"}', "its version is null; this piper-dsl reads version 1"),
        ('{"piper-dsl": "measured timeline", "version": "1"}', 'its version is "1"; this piper-dsl reads version 1'),
        ('{"piper-dsl": "measured timeline", "version": true}', "its version is true; this piper-dsl reads version 1"),
        ('{"piper-dsl": "measured timeline", "version": 1.0}', "its version is 1.0; this piper-dsl reads version 1"),
        ('{"NaN": "Infinity",\n "version": NaN}', "NaN is no number of JSON: line 2 column 13"),
        ('["\\"NaN", -Infinity]', "-Infinity is no number of JSON: line 1 column 11"),
    ],
)
def test_what_is_no_timeline(text: str, said: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")
    assert said in _refusal(path)


def _refusal(path: Path, code: str = "P004") -> str:
    with pytest.raises(PipeError) as caught:
        read_timeline(str(path))
    assert [finding.code for finding in caught.value.diagnostics] == [code]
    return str(caught.value)


def test_what_is_no_text(path: Path) -> None:
    assert "cannot read" in _refusal(path.parent, "P001")
    assert "Is a directory" in _refusal(path.parent, "P001")
    path.write_bytes(b'{"piper-dsl": "\xff"}')
    assert f"{path} is not UTF-8 text: byte 15 is 0xff" in _refusal(path, "P001")


def test_a_mark_of_the_byte_order_is_read_over(path: Path) -> None:
    path.write_text(timeline_json(_measured()), encoding="utf-8-sig")
    assert read_timeline(str(path)).measured


def test_transfers_and_optimizers_run_when_they_may(path: Path) -> None:
    """An OPT has the times of its optimizer, which runs at the end of the step; a transfer runs beside the rest."""
    text = """ranks 2 microbatches 1 place s on 0 * (s < 2) + (s >= 2)  stages 3
    rank 0 { F[0]@0  F[0]@1  SEND_F[0]@1  RECV_B[0]@1  B[0]@1  OPT@1  B[0]@0  OPT@0 }
    rank 1 { RECV_F[0]@2  F[0]@2  B[0]@2  SEND_B[0]@2  OPT@2 }"""
    schedule = expand(parse(Source("mid.pipe", text)))
    begun = [0, 1, 1.5, 0, 5, 8, 6, 7, 2, 2, 3, 4, 5]
    written = measured_timeline(schedule, np.array(begun, float), np.array(begun, float) + 1, Costs())
    path.write_text(timeline_json(written), encoding="utf-8")
    assert read_timeline(str(path)).start.tolist() == begun


def test_what_is_long_is_not_repeated_whole(path: Path) -> None:
    document = json.loads(timeline_json(_measured()))
    document["ranks"][0][0] = ["0F0" * 10_000, 0.0, 1.0]
    path.write_text(json.dumps(document), encoding="utf-8")
    assert len(_refusal(path)) < 400


@pytest.mark.parametrize(
    ("at", "value", "said"),
    [
        (["schedule"], 7, "its `schedule` must be a str, not int"),
        (["schedule"], "ranks 2", "its schedule cannot be used: "),
        (["schedule"], 'schedule "\ud800"', "surrogates not allowed"),
        (["schedule"], "ranks 1 microbatches 1 rank 0: B0 F0", "its schedule cannot be used: 0B0 runs before"),
        (["parameters", "p"], "two", 'its parameter p must be a whole number that schedules can have, not "two"'),
        (["parameters", "p"], True, "its parameter p must be a whole number that schedules can have, not true"),
        (["parameters", "p"], 2.0, "its parameter p must be a whole number that schedules can have, not 2.0"),
        (["parameters", "m"], 10**16, "its parameter m must be a whole number that schedules can have"),
        (["parameters", "m p"], 1, 'its parameters have names as in `p`, not "m p"'),
        (["costs", "cost"], {}, "unknown entries: ['cost']"),
        (["costs", "costs", "F"], [1.0, 2.0, 3.0], "3 costs of F for 2 stages"),
        (["extra"], 1, "unknown entries: ['extra']"),
        (["ranks"], [[]], "it has the times of 1 ranks, and a schedule for 2"),
        (["ranks", 1], [], "rank 1 must have the times of its 7 operations"),
        (["ranks", 0, 0], ["0F0", 0.0], 'rank 0 must have ["0F0", start, end], not ["0F0", 0.0]'),
        (["ranks", 0, 0, 0], "0F1", 'rank 0 must have ["0F0", start, end]'),
        (
            ["ranks", 0, 0, 1],
            2.0,
            "0F0 must run from a time of at least 0 to a later one of at most 1e+100 s, not from 2.0",
        ),
        (["ranks", 0, 0, 1], -1.0, "not from -1.0"),
        (["ranks", 0, 0, 1], "now", 'not from "now"'),
        (["ranks", 0, 0, 2], True, "not from 0.0 to true"),
        (["ranks", 0, 0, 2], 1e308, "not from 0.0 to 1e+308"),
        (["ranks", 0, 0, 2], 10**400, "not from 0.0 to 1000"),
        (["ranks", 0, 0, 2], 0.012, "rank 0 runs 0F0 before 0F1, but 0F0 ends at 0.012 and 0F1 starts at 0.0115"),
        (["ranks", 0, 2, 1], 0.001, "rank 0 runs 0F1 before 0B0, but 0F1 ends at 0.023 and 0B0 starts at 0.001"),
    ],
)
def test_what_does_not_fit(at: list[Any], value: Any, said: str, path: Path) -> None:
    document = json.loads(timeline_json(_measured()))
    *outer, last = at
    place = document
    for name in outer:
        place = place[name]
    place[last] = value
    path.write_text(json.dumps(document), encoding="utf-8")
    assert said in _refusal(path)
