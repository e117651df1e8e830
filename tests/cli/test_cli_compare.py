"""piper-dsl compare: the same figures as simulate, side by side."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from piper_dsl.cli.main import app


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
    assert run("1f1b", "-p", "m=few").exit_code == 2
    assert run("1f1b", "--transport", "pigeon").exit_code == 2
