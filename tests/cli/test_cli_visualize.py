"""piper-dsl visualize: outputs, windows, several schedules, schedules with findings."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_words import words
from typer.testing import CliRunner, Result

from piper_dsl.cli.main import app
from piper_dsl.ir.operations import Kind, Operation
from piper_dsl.library import load
from piper_dsl.simulate import Costs, simulate, timeline_json
from piper_dsl.simulate.measured import measured_timeline

STUCK = "ranks 2 microbatches 2\nrank 0: F0 B0 F1 B1\nrank 1: F0 F1 B0 B1\n"

CROSSED = """
ranks 2
microbatches 2
rank 0 { F[0] SEND_F[0]@0 F[1] RECV_B[0]@0 SEND_F[1]@0 B[0] RECV_B[1]@0 B[1] }
rank 1 { RECV_F[0]@1 F[0] RECV_F[1]@1 B[0] SEND_B[0]@1 F[1] B[1] SEND_B[1]@1 }
"""


def _invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["visualize", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    return result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stuck.pipe").write_text(STUCK)
    return tmp_path


def test_several_outputs_at_once(folder: Path) -> None:
    result = _invoke("1f1b", "-o", "a.svg", "-o", "new/a.png", "-o", "a.txt", "-o", "a.dot")
    assert (result.exit_code, result.stdout) == (0, "wrote a.svg\nwrote new/a.png\nwrote a.txt\nwrote a.dot\n")
    assert {path.name for path in folder.rglob("a.*")} == {"a.svg", "a.png", "a.txt", "a.dot"}


@pytest.mark.usefixtures("folder")
def test_standard_output_has_the_picture_alone() -> None:
    result = _invoke("1f1b", "-o", "-.svg", "-o", "a.txt")
    assert result.stdout.startswith("<?xml")
    assert result.stdout.rstrip().endswith("</svg>")
    assert result.stderr == "wrote a.txt\n"
    assert _invoke("1f1b", "-o", "-").stdout.startswith("1F1B  p=4 m=8 v=1\n")


@pytest.mark.usefixtures("folder")
def test_an_unknown_ending_is_found_before_anything_is_written() -> None:
    result = _invoke("1f1b", "-o", "a.svg", "-o", "-.bmp")
    assert result.exit_code == 1
    assert "cannot draw standard output.bmp: its ending names no format" in result.stderr
    assert not Path("a.svg").exists()


@pytest.mark.parametrize("text", ["x", "1-", "1,,2", "3-x", ""])
def test_ranks_that_are_none(text: str) -> None:
    result = _invoke("1f1b", "--ranks", text)
    assert result.exit_code == 2
    assert "write --ranks 0,4-7" in result.stderr


def test_a_window_in_the_terminal() -> None:
    result = _invoke("1f1b", "--ranks", "0,2-3", "--from", "10", "--to", "20", "--width", "80")
    assert [line[:7] for line in result.stdout.splitlines() if line.startswith("rank")] == [
        "rank 0 ",
        "rank 2 ",
        "rank 3 ",
    ]
    assert "shown: 10 to 20 of 33, ranks 0 2 3" in result.stdout


@pytest.mark.usefixtures("folder")
def test_a_schedule_with_findings_is_drawn_as_far_as_it_runs() -> None:
    result = _invoke("stuck.pipe", "-o", "stuck.svg", "-o", "-")
    assert result.exit_code == 1
    assert "error[P301]: ranks 0 and 1 wait for each other" in result.stderr
    assert "stuck: 2 operations run, then nothing goes on · rank 0 at 0B0, rank 1 at 1F1" in result.stdout
    assert "stuck 1F1 on rank 1" in Path("stuck.svg").read_text()


def test_several_schedules_stand_in_one_picture() -> None:
    result = _invoke("1f1b", "gpipe", "zb_h1", "-p", "p=2", "-p", "m=4", "-o", "-")
    assert [line.split()[0] for line in result.stdout.splitlines() if "  p=2 m=4" in line] == ["1F1B", "GPipe", "ZB-H1"]


@pytest.mark.usefixtures("folder")
def test_every_option_of_a_picture() -> None:
    options = ["--transfers", "--critical-path", "--memory", "--theme", "dark"]
    svg = _invoke("1f1b", *options, "-o", "-.svg").stdout
    for expected in ("#121417", "<title>critical 0F0 #0", "<title>memory of rank 0", 'class="edge"'):
        assert expected in svg


@pytest.mark.usefixtures("folder")
def test_graphs() -> None:
    assert "<title>stage 3" in _invoke("1f1b", "--graph", "stages", "-o", "-.svg").stdout
    assert _invoke("1f1b", "--graph", "needs", "-o", "needs.png").stdout == "wrote needs.png\n"
    for arguments, said in (
        (["1f1b", "gpipe", "-o", "x.svg"], "-o graph.svg"),
        (["1f1b"], "-o graph.svg"),
        (["1f1b", "-p", "p=2,4", "-o", "x.svg"], "one value of p is wanted here"),
        (["measured.json", "-o", "x.svg"], "name the schedule that ran, not measured.json"),
    ):
        result = _invoke(*arguments, "--graph", "stages")
        assert result.exit_code == 2
        assert said in words(result.stderr)
    stuck = _invoke("stuck.pipe", "--graph", "stages", "-o", "stages.dot")
    assert (stuck.exit_code, stuck.stdout) == (1, "wrote stages.dot\n")
    assert "error[P301]" in stuck.stderr
    assert "the operations wait in a circle" in _invoke("stuck.pipe", "--graph", "needs", "-o", "needs.dot").stderr
    assert "end it in .svg, .png, .pdf, .dot\n" in _invoke("1f1b", "--graph", "stages", "-o", "x.txt").stderr


def test_check_draws_the_circle_of_a_deadlock(folder: Path) -> None:
    result = CliRunner().invoke(app, ["check", "stuck.pipe", "--draw", "cycle.svg"])
    assert (result.exit_code, result.stdout) == (1, "wrote cycle.svg\n")
    assert "<title>0B0" in (folder / "cycle.svg").read_text()
    (folder / "crossed.pipe").write_text(CROSSED)
    result = CliRunner().invoke(app, ["check", "crossed.pipe", "--transport", "blocking", "--draw", "-.dot"])
    assert result.exit_code == 1
    assert "transfers wait for each other on transport blocking" in result.stdout
    result = CliRunner().invoke(app, ["check", "1f1b", "--draw", "none.svg"])
    assert result.exit_code == 0
    assert result.stderr == "nothing to draw: no ranks wait in a circle\n"
    assert not (folder / "none.svg").exists()


def test_a_measured_timeline_under_one_axis_with_its_prediction(folder: Path) -> None:
    schedule = load("1f1b", p=2, m=4)
    predicted = simulate(schedule, Costs(F=0.01, B=0.02))
    operations = schedule.row(0)
    slow, stepped = (
        [operations.index(Operation(*key)) for key in keys]
        for keys in ([(Kind.F, 0, 1), (Kind.B, 0, 3)], [(Kind.OPT, 0)])
    )
    times = predicted.start.copy(), predicted.end.copy()
    times[0][stepped] += 0.01
    times[1][slow + stepped] += 0.01
    measured = measured_timeline(schedule, *times, predicted.costs)
    (folder / "measured.json").write_text(timeline_json(measured), encoding="utf-8")
    said = _invoke("1f1b", "-p", "p=2", "-p", "m=4", "measured.json", "-o", "-", "-o", "both.svg").stdout
    assert "1F1B, measured  p=2 m=4 v=1\n" in said
    assert "makespan +0.01 (+6.7%) against the first · 0 operations in another order · 2 take another time" in said
    assert "as measured" in said
    svg = (folder / "both.svg").read_text()
    assert svg.count("<title>panel 1 slower or faster ") == 2
    alone = _invoke("measured.json", "-o", "alone.html")
    assert (alone.exit_code, alone.stdout) == (0, "wrote alone.html\n")
    refused = _invoke("zb_h1", "-p", "p=2", "-p", "m=4", "measured.json")
    assert refused.exit_code == 1
    other = _invoke("1f1b", "-p", "p=2", "-p", "m=8", "measured.json")
    assert (other.exit_code, other.stdout) == (1, "")
    assert other.stderr.startswith("error[P004]: measured.json was measured with m=4\n")
    assert _invoke("1f1b", "-p", "m=4,8", "-p", "p=2", "measured.json", "-o", "page.html").exit_code == 0
    assert '{"refusal":"m = 8, p = 2: measured.json was measured with m=4"}' in (folder / "page.html").read_text()
    assert refused.stderr.splitlines()[:2] == [
        "error[P003]: measured.json does not say how long I and W take, which ZB-H1 runs",
        "  = help: add --cost I=SECONDS --cost W=SECONDS, or a profile with --costs",
    ]


def test_several_values_make_a_page_with_sliders(folder: Path) -> None:
    result = _invoke("dualpipev", "-p", "p=2,3", "-p", "m=4,6", "-o", "page.html")
    assert (result.exit_code, result.stdout) == (0, "wrote page.html\n")
    page = (folder / "page.html").read_text()
    assert '"sliders":[{"name":"p","values":[2,3]},{"name":"m","values":[4,6]}]' in page
    assert '{"refusal":"p = 3, m = 4: DualPipeV needs at least 2 microbatches' in page
    assert "add -o page.html" in _invoke("1f1b", "-p", "p=2,3").stderr
    refused = _invoke("1f1b", "-p", "p=2,3", "-o", "a.svg")
    assert "cannot draw a.svg for several values of a parameter" in refused.stderr
    nothing = _invoke("dualpipev", "-p", "p=4", "-p", "m=1,2", "-o", "page.html")
    assert (nothing.exit_code, "there is nothing to draw: p = 4, m = 1" in nothing.stderr) == (1, True)


def test_a_variant_without_a_picture_is_one_that_is_refused(folder: Path) -> None:
    assert _invoke("1f1b", "-p", "m=4,16", "--from", "30", "-o", "page.html").exit_code == 0
    page = (folder / "page.html").read_text()
    assert '{"refusal":"m = 4: there is nothing to draw from 30 to 21"}' in page
    assert '"title":"1F1B  p=4 m=16 v=1"' in page
    assert _invoke("1f1b", "-p", "p=2,4", "--ranks", "3", "-o", "page.html").exit_code == 0
    assert '{"refusal":"p = 2: there is no rank 3 to draw"}' in (folder / "page.html").read_text()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nowhere.pipe", "-p", "m=4,8"], 1, "error[P001]: cannot read nowhere.pipe"),
        (["1f1b", "1f1c", "-p", "m=4,8"], 1, "error[P001]: there is no schedule `1f1c`"),
        (["1f1b", "-p", "q=4,8"], 1, "error[P212]: the schedule has no parameter `q`"),
        (["broken.pipe", "-p", "n=4,8"], 1, "error[P101]"),
        (["1f1b", "-p", "p=2,2"], 2, "'p=2,2': a value is there twice"),
        (["1f1b", "-p", "p=2", "-p", "p=4"], 2, "'p=4': -p p is given twice"),
        (["1f1b", "-p", "m=100000,100001"], 1, "error[P801]: these values make more than the 300,000 operations"),
    ],
)
def test_what_no_values_would_mend_is_no_refused_variant(arguments: list[str], code: int, said: str) -> None:
    Path("broken.pipe").write_text("param n = 1 ranks\n")
    result = _invoke(*arguments, "-o", "page.html")
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in words(result.stderr)
    assert not Path("page.html").exists()


@pytest.mark.usefixtures("folder")
def test_options_that_would_say_nothing() -> None:
    wide = _invoke("1f1b", "--width", "60", "-o", "a.txt")
    assert (wide.exit_code, Path("a.txt").exists()) == (2, False)
    assert "--width is that of text on the terminal" in words(wide.stderr)
    assert "error[P801]: cannot draw a file without a name" in _invoke("1f1b", "-o", "").stderr
    nameless = CliRunner().invoke(app, ["check", "stuck.pipe", "--draw", ""])
    assert "error[P801]: cannot draw a file without a name" in nameless.stderr


def test_findings_of_every_variant_are_said(folder: Path) -> None:
    (folder / "late.pipe").write_text("param n = 1\n" + STUCK.replace("rank 0: F0 B0 F1 B1", "rank 0: F0 F1 B0 B1"))
    assert _invoke("late.pipe", "-p", "n=1,2", "-o", "page.html").exit_code == 0
    (folder / "stuck.pipe").write_text("param n = 1\n" + STUCK)
    stuck = _invoke("stuck.pipe", "-p", "n=1,2", "-o", "page.html")
    assert stuck.exit_code == 1
    assert stuck.stderr.count("error[P301]") == 2
