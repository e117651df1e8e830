"""piper-dsl compare: the same figures as simulate, side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from piper_dsl.cli.main import app
from piper_dsl.library import load
from piper_dsl.simulate import Costs, simulate, timeline_json


def run(*arguments: str):
    return CliRunner().invoke(app, ["compare", *arguments])


def test_figures_are_those_of_simulate_and_combinations_come_in_order() -> None:
    result = run("1f1b", "zb_h1", "-p", "p=4", "-p", "m=4,8", "--format", "json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)["schedules"]
    assert [(f["name"], f["parameters"]["m"], f["makespan"]) for f in found] == [
        ("1F1B", 4, 21),
        ("ZB-H1", 4, 15),
        ("1F1B", 8, 33),
        ("ZB-H1", 8, 27),
    ]
    assert found[3]["peak_activations"] == [4, 4, 4, 4]
    assert found[3]["bubble"] == {"idle": 1 - 24 / 27, "span": 1 - 24 / 27}


def test_the_best_of_each_column_is_marked_and_stages_are_scaled() -> None:
    lines = run("1f1b", "v_half", "-p", "p=4", "-p", "m=8").stdout.splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["1F1B", "p=4", "m=8", "v=1", "33", "27.3%", "27.3%", "4"],
        ["V-Half", "p=4", "m=8", "v=2", "26.5", "*", "9.4%", "*", "9.4%", "*", "3", "*"],
    ]


def test_a_profile_says_what_stages_cost(tmp_path) -> None:
    profile = tmp_path / "costs.toml"
    profile.write_text("[costs]\nF = 0.5\n", encoding="utf-8")
    lines = run("v_half", "-p", "p=4", "-p", "m=8", "--costs", str(profile)).stdout.splitlines()
    assert lines[1].split()[-1] == "*"
    assert lines[1].split()[-2] == "6"


def test_what_is_refused_says_why_and_all_refused_is_a_failure() -> None:
    mixed = run("1f1b", "dualpipev", "-p", "p=4", "-p", "m=6", "--format", "json")
    assert mixed.exit_code == 0
    assert json.loads(mixed.stdout)["schedules"][1]["refusal"].startswith("DualPipeV needs at least 2 microbatches")
    assert run("dualpipev", "-p", "p=4", "-p", "m=6").exit_code == 1
    lines = run("1f1b", "dualpipev", "-p", "p=4", "-p", "m=6").stdout.splitlines()
    assert lines[2].split() == ["dualpipev", "p=4", "m=6", "–", "–", "–", "–"]
    assert lines[3].startswith("dualpipev p=4 m=6: DualPipeV needs at least 2 microbatches")
    assert run("1f1b", "-p", "m=few").exit_code == 2
    for values in (["m=4,4"], ["m=4", "-p", "m=8"]):
        twice = run("1f1b", "-p", *values)
        assert twice.exit_code == 2
        assert " twice" in twice.stderr
    assert run("1f1b", "--transport", "pigeon").exit_code == 2


@pytest.fixture
def measured(tmp_path: Path) -> str:
    timeline = simulate(load("1f1b", p=4, m=8), Costs(F=0.01, B=0.02))
    (tmp_path / "measured.json").write_text(timeline_json(timeline), encoding="utf-8")
    return str(tmp_path / "measured.json")


def test_a_measured_timeline_stands_beside_what_its_costs_predict(measured: str) -> None:
    found = json.loads(run("1f1b", "gpipe", measured, "-p", "p=4", "-p", "m=8", "--format", "json").stdout)["schedules"]
    assert [(row["name"], row["measured"], row["makespan"]) for row in found] == [
        ("1F1B", False, pytest.approx(0.33)),
        ("GPipe", False, pytest.approx(0.33)),
        ("1F1B, measured", True, pytest.approx(0.33)),
    ]
    slower = run("1f1b", measured, "-p", "p=4", "-p", "m=8", "--cost", "F=0.02", "--format", "json")
    assert json.loads(slower.stdout)["schedules"][0]["makespan"] == pytest.approx(0.44)


def test_what_was_not_measured_is_said(measured: str) -> None:
    said = run("1f1b", "zb_h1", "interleaved_1f1b", measured, "-p", "p=4", "-p", "m=4").stdout
    assert f"zb_h1 p=4 m=4: {measured} does not say how long I and W take, which ZB-H1 runs" in said
    assert (
        f"interleaved_1f1b p=4 m=4: the costs in {measured} are those of 4 stages, interleaved 1F1B has others: 8"
        in said
    )
    assert f"{measured} p=4 m=4: {measured} was measured with m=8" in said
    assert run("1f1b", "nothing.json").exit_code == 1
    alone = run(measured, "-p", "p=4")
    assert alone.exit_code == 2
    assert "a measured timeline has" in alone.stderr
