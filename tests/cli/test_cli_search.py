"""`piper-dsl search`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click import unstyle
from typer.testing import CliRunner, Result

import piper_dsl as piper
from piper_dsl.cli.main import app
from piper_dsl.search import exact

HALVES = ["--cost", "F=5", "--cost", "I=6", "--cost", "W=4", "--memory-limit", "5", "--released-at-input", "0.5"]
PROBLEM = ["search", "zb_h1", "-p", "p=4", "-p", "m=12", *HALVES, "--measure", "span"]


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160", "TERMINAL_WIDTH": "160"})
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    return result


def test_the_report_says_what_was_found_and_what_limits_beside_the_library() -> None:
    done = invoke(*PROBLEM)
    assert done.exit_code == 0
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert lines[0].startswith("ZB-H1, searched  by ")
    assert lines[1] == "span       193, the best there is"
    why = "the first gradient is back on rank 0 after 38, and until then it has memory for 5 forwards"
    assert lines[2] == f"bound      193: {why}"
    limits = "the bound is 180 without limits of memory, 193 if links took no time"
    assert lines[3] == f"limited by the memory of rank 0; {limits}"
    assert lines[4].split() == ["schedule", "makespan", "span", "idle", "in", "span", "peak", "memory"]
    rows = {line.split()[0]: line for line in lines[5:-1]}
    assert rows["searched"].endswith("*")
    assert rows["zb_h1"].split()[1:3] == ["201", "201"]
    assert rows["zb_h2"].endswith("does not fit")
    assert lines[-1] == "write the order to a file with -o FILE"
    assert "201" in done.stderr.splitlines()[0] or "s" in done.stderr


def test_it_writes_a_file_that_checks_and_keeps_its_figures(tmp_path: Path) -> None:
    path = tmp_path / "made" / "best.pipe"
    done = invoke(*PROBLEM, "-o", str(path))
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == f"wrote {path}"
    assert invoke("check", str(path)).exit_code == 0
    assert invoke("fmt", "--check", str(path)).exit_code == 0
    timeline = piper.simulate(piper.load(str(path)), piper.Costs(F=5, I=6, W=4))
    assert max(rank.end - rank.start for rank in timeline.ranks) == 193


def test_json_has_the_figures_and_the_file() -> None:
    done = invoke(*PROBLEM, "--format", "json")
    document = json.loads(done.stdout)
    assert (document["value"], document["bound"]["value"], document["proven"], document["gap"]) == (193, 193, True, 0)
    assert document["bound"]["resource"] == "memory"
    assert document["pipe"].startswith("# Found by `piper-dsl search`")
    assert {row["name"] for row in document["schedules"] if row["fits"]} >= {"searched", "zb_h1", "1f1b"}


def test_costs_come_from_a_profile(tmp_path: Path) -> None:
    profile = tmp_path / "costs.toml"
    profile.write_text("latency = 1\n[costs]\nF = [1.0, 2.0]\nI = 1.0\nW = 1.0\n")
    done = invoke("search", "zb_h1", "-p", "p=2", "-p", "m=4", "--costs", str(profile), "--format", "json")
    assert json.loads(done.stdout)["bound"]["without_latency"] < json.loads(done.stdout)["bound"]["value"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--time-limit", "0"], "--time-limit must be more than 0 seconds"),
        (["--time-limit", "-1"], "--time-limit must be more than 0 seconds"),
        (["--memory-limit", "2,2"], "2 memory limits for 4 ranks"),
        (["--memory-limit", "two"], "write --memory-limit 8"),
        (["--transport", "pigeon"], "pigeon"),
        (["--measure", "speed"], "'speed' is not one of"),
    ],
)
def test_options_that_do_not_fit_are_usage_errors(arguments: list[str], message: str) -> None:
    done = invoke("search", "zb_h1", *arguments)
    assert done.exit_code == 2
    assert message in " ".join(unstyle(done.output).split())


def test_a_limit_nobody_can_meet_says_the_smallest() -> None:
    done = invoke("search", "zb_v", "-p", "p=4", "--memory-limit", "1.5")
    assert done.exit_code == 1
    assert "error[P602]: rank 0 may hold 1.5 activations, and no order holds less than 2" in done.stderr
    assert "the smallest limit is 2" in done.stderr


def test_costs_for_another_number_of_stages_are_refused(tmp_path: Path) -> None:
    profile = tmp_path / "costs.toml"
    profile.write_text("[costs]\nF = [1.0, 2.0]\n")
    done = invoke("search", "zb_h1", "-p", "p=4", "--costs", str(profile))
    assert done.exit_code == 1
    assert "error[P003]" in done.stderr


def test_what_is_missing_is_said_where_it_would_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact.importlib.util, "find_spec", lambda name: None)
    done = invoke("search", "zb_v", "-p", "p=2", "-p", "m=4", "--memory-limit", "3", "--cost", "F=1.7", "--cost", "W=2")
    assert done.exit_code == 0
    assert "too long" in done.stdout
    assert "pip install 'piper-dsl[search]'" in done.stdout
