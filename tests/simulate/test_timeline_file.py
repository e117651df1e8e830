"""Measured timelines in files: what is written is read back, and what is none is refused with what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from piper_dsl.diagnostics import PipeError
from piper_dsl.ir.memory import Memory
from piper_dsl.library import library_names, load
from piper_dsl.simulate import Costs, read_timeline, simulate, timeline_json
from piper_dsl.simulate.measured import measured_timeline

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
    shaken = np.random.default_rng(7).uniform(0.9, 1.0, len(schedule.slots.first) - 1)[schedule.slot]
    written = measured_timeline(schedule, predicted.start * shaken, predicted.end * shaken, predicted.costs)
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
        ('{"piper-dsl": "measured timeline"}', "its version is None; this piper-dsl reads version 1"),
    ],
)
def test_what_is_no_timeline(text: str, said: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PipeError) as caught:
        read_timeline(str(path))
    assert [finding.code for finding in caught.value.diagnostics] == ["P004"]
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("at", "value", "said"),
    [
        (["schedule"], 7, "its `schedule` must be a str, not int"),
        (["schedule"], "ranks 2", "its schedule cannot be used: "),
        (["parameters"], {"p": "two"}, "its parameters must be whole numbers"),
        (["costs", "cost"], {}, "unknown entries: ['cost']"),
        (["costs", "costs", "F"], [1.0, 2.0, 3.0], "3 costs of F for 2 stages"),
        (["extra"], 1, "unknown entries: ['extra']"),
        (["ranks"], [[]], "it has the times of 1 ranks, and a schedule for 2"),
        (["ranks", 1], [], "rank 1 must have the times of its 7 operations"),
        (["ranks", 0, 0], ["0F0", 0.0], 'rank 0 must have ["0F0", start, end], not ["0F0", 0.0]'),
        (["ranks", 0, 0, 0], "0F1", 'rank 0 must have ["0F0", start, end]'),
        (["ranks", 0, 0, 1], 2.0, "0F0 must run from a time of at least 0 to a later one, not from 2.0 to 0.0115"),
        (["ranks", 0, 0, 2], float("nan"), "not from 0.0 to nan"),
        (["ranks", 0, 0, 1], -1.0, "not from -1.0"),
        (["ranks", 0, 0, 1], "now", "not from now"),
        (["ranks", 0, 0, 2], 10**400, "too large"),
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
    with pytest.raises(PipeError) as caught:
        read_timeline(str(path))
    assert [finding.code for finding in caught.value.diagnostics] == ["P004"]
    assert said in str(caught.value)
