"""What the commands report to programs: the shapes are a promise."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from piper_dsl.cli.main import app
from piper_dsl.library import load, read_source
from piper_dsl.lower import Program, lower


def _json(*arguments: str, input: str | None = None, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--format", "json"], input=input)
    assert result.exit_code == code, result.output
    assert result.stderr == ""
    return json.loads(result.stdout)


def test_check_of_a_good_schedule() -> None:
    assert _json("check", "zb_h1", "-p", "p=2", "-p", "m=4") == {
        "ok": True,
        "schedule": {"name": "ZB-H1", "ranks": 2, "stages": 2, "microbatches": 4, "operations": 26},
        "diagnostics": [],
    }


def test_check_of_a_schedule_with_findings() -> None:
    text = "ranks 2\nmicrobatches 1\nrank 0: 0F0 0F0\n  0B0\nrank 1: 1F0 1B0"
    assert _json("check", "-", input=text, code=1) == {
        "ok": False,
        "schedule": {"name": "<stdin>", "ranks": 2, "stages": 2, "microbatches": 1, "operations": 5},
        "diagnostics": [
            {
                "code": "P402",
                "severity": "error",
                "message": "0F0 occurs twice",
                "file": "<stdin>",
                "line": 3,
                "column": 13,
                "end_line": 3,
                "end_column": 16,
                "help": "remove one of the two",
                "related": [{"message": "the first one", "file": "<stdin>", "line": 3, "column": 9}],
            }
        ],
    }


def test_check_of_what_does_not_expand(tmp_path: Path) -> None:
    path = tmp_path / "bad.pipe"
    path.write_text("let x = z\nlet z = 1\nranks 1 microbatches 1 rank 0:\n")
    document = _json("check", str(path), code=1)
    assert document["schedule"] is None
    assert document["diagnostics"] == [
        {
            "code": "P201",
            "severity": "error",
            "message": "unknown name `z`",
            "file": str(path),
            "line": 1,
            "column": 9,
            "end_line": 1,
            "end_column": 10,
            "help": None,
            "related": [],
        }
    ]


def test_a_place_may_end_on_another_line() -> None:
    (finding,) = _json("check", "-", input="let z = 1 //\n  0\nranks 1 microbatches 1 rank 0: F0", code=1)[
        "diagnostics"
    ]
    places = {key: finding[key] for key in ("code", "line", "column", "end_line", "end_column")}
    assert places == {"code": "P203", "line": 1, "column": 9, "end_line": 2, "end_column": 4}


def test_a_finding_without_a_place() -> None:
    document = _json("check", "1f1b", "-p", "q=1", code=1)
    (finding,) = document["diagnostics"]
    assert finding == {
        "code": "P212",
        "severity": "error",
        "message": "the schedule has no parameter `q`",
        "file": None,
        "line": None,
        "column": None,
        "end_line": None,
        "end_column": None,
        "help": "its parameters: p, m, v",
        "related": [],
    }


def test_case_a10() -> None:
    text = "ranks 2\nmicrobatches 2\nrank 0: 0F0 0B0 0F1 0B1\nrank 1: 1F1 1F0 1B0 1B1\n"
    (finding,) = _json("check", "-", input=text, code=1)["diagnostics"]
    assert (finding["code"], finding["line"], finding["column"], finding["end_column"]) == ("P301", 3, 13, 16)
    assert finding["related"] == [
        {
            "message": "rank 1 waits for the activation of microbatch 1 from rank 0",
            "file": "<stdin>",
            "line": 4,
            "column": 9,
        }
    ]


def test_simulate() -> None:
    document = _json("simulate", "1f1b", "-p", "p=2", "-p", "m=2")
    assert document == {
        "makespan": 9.0,
        "bubble": {"idle": pytest.approx(1 / 3), "span": pytest.approx(1 / 3)},
        "ranks": [
            {
                "rank": 0,
                "busy": 6.0,
                "idle": 3.0,
                "span_idle": 3.0,
                "peak_activations": 2,
                "peak_memory": 2.0,
                "peak_at": "0F1",
                "standing_memory": 0.0,
                "start": 0.0,
                "end": 9.0,
            },
            {
                "rank": 1,
                "busy": 6.0,
                "idle": 3.0,
                "span_idle": 0.0,
                "peak_activations": 1,
                "peak_memory": 1.0,
                "peak_at": "1F0",
                "standing_memory": 0.0,
                "start": 1.0,
                "end": 7.0,
            },
        ],
        "critical_path": ["0F0", "1F0", "1B0", "1F1", "1B1", "0B1"],
        "bounds": {"busiest_rank": 9.0, "chain": 6.0},
        "limiting_stage": None,
        "transfer_wait": 0.0,
    }


@pytest.mark.parametrize(
    ("options", "makespan"),
    [
        ([], 33),
        (["--latency", "1"], 49),
        (["--cost", "F=2", "--cost", "B=3"], 55),
        (["--cost", "F=1", "--cost", "F=0.5", "-p", "m=1"], 10),
        (["-p", "p=8", "-p", "m=64"], 213),
        (["--param", "p=2"], 27),
    ],
)
def test_simulate_takes_costs_and_parameters(options: list[str], makespan: float) -> None:
    assert _json("simulate", "1f1b", *options)["makespan"] == makespan


def test_list() -> None:
    entries = {entry["name"]: entry for entry in _json("list")["schedules"]}
    assert {"gpipe", "1f1b", "interleaved_1f1b", "zb_h1"} <= set(entries)
    assert entries["interleaved_1f1b"]["parameters"] == [
        {"name": "p", "default": "4", "description": "pipeline ranks"},
        {"name": "m", "default": "8", "description": "microbatches per step"},
        {"name": "v", "default": "2", "description": "chunks (stages) per rank"},
    ]
    assert entries["gpipe"]["summary"] == "GPipe: every microbatch forward, then every one backward"


def test_compile_for_ray_reports_the_binds() -> None:
    document = _json("compile", "1f1b", "-p", "p=2", "-p", "m=1", "--target", "ray-dag")
    assert {key: document[key] for key in ("name", "ranks")} == {"name": "1F1B", "ranks": 2}
    calls = {(b["operation"], b["rank"], b["method"], b["between_actors"]) for b in document["binds"]}
    assert calls == {
        ("0F0", 0, "forward", False),
        ("1F0", 1, "forward", True),
        ("1B0", 1, "backward", False),
        ("0B0", 0, "backward", True),
        ("0OPT", 0, "optimizer_step", False),
        ("1OPT", 1, "optimizer_step", False),
    }
    assert all(
        set(b) == {"results", "rank", "method", "operation", "sources", "between_actors"} for b in document["binds"]
    )


def test_compile_to_json_is_the_program(tmp_path: Path) -> None:
    expected = lower(load("zb_h1", p=2, m=3))
    arguments = ["compile", "zb_h1", "-p", "p=2", "-p", "m=3", "--target", "json"]
    printed = CliRunner().invoke(app, arguments)
    assert (printed.exit_code, Program.from_json(printed.stdout)) == (0, expected)
    path = tmp_path / "new" / "folder" / "program.json"
    written = CliRunner().invoke(app, [*arguments, "-o", str(path)])
    assert (written.exit_code, written.stdout, written.stderr) == (0, f"wrote {path}\n", "")
    assert Program.from_json(path.read_text()) == expected


def test_compile_to_python_compiles(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    arguments = ["compile", "1f1b", "-p", "p=2", "-p", "m=2", "--target", "python", "-o", str(path)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    text = path.read_text()
    compile(text, str(path), "exec")
    assert text.count(".bind(") >= 2 * (2 * 2 + 1)


def test_a_name_with_backslashes_still_makes_a_script(tmp_path: Path) -> None:
    source = tmp_path / "x.pipe"
    source.write_text('schedule "\\N"\nranks 1\nmicrobatches 1\nrank 0: F0 B0 OPT\n')
    result = CliRunner().invoke(app, ["compile", str(source), "--target", "python"])
    assert ast.get_docstring(ast.parse(result.stdout)).startswith("\\N: 1 ranks")


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved_1f1b", "zb_h1"])
def test_show_prints_the_source(name: str) -> None:
    result = CliRunner().invoke(app, ["show", name])
    assert (result.exit_code, result.stdout, result.stderr) == (0, read_source(name).text, "")


def test_show_changes_nothing(tmp_path: Path) -> None:
    text = "ranks\t1   \n# [bold]not markup[/bold] :smile: → " + "x" * 300 + "\nmicrobatches 1\n\n"
    path = tmp_path / "mine.pipe"
    path.write_text(text)
    assert CliRunner().invoke(app, ["show", str(path)]).stdout == text
