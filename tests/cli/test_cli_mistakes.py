"""Mistakes of a user: one clear message, exit code 1 or 2, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_words import words
from click import unstyle
from typer.testing import CliRunner, Result

from piper_dsl.cli.main import app

READING = ("check", "simulate", "visualize", "compile", "show")
LOADING = ("check", "simulate", "visualize", "compile")


def _invoke(*arguments: str, input: str | bytes | None = None) -> Result:
    result = CliRunner().invoke(app, list(arguments), input=input)
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    return result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_folder.pipe").mkdir()
    (tmp_path / "binary.pipe").write_bytes(b"\x7fELF\x00\xff\xfe\x01")
    (tmp_path / "broken.pipe").write_text("ranks 1\nmicrobatches 1\nrank 0: F0 0F0x\n")
    (tmp_path / "unfit.pipe").write_text("ranks 1\nmicrobatches 1\nrank 0: F0 F0 B0\n")
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("1f1c", "error[P001]: there is no schedule `1f1c`\n  = help: did you mean `1f1b`?\n"),
        ("nowhere.pipe", "error[P001]: cannot read nowhere.pipe: No such file or directory\n"),
        ("a_folder.pipe", "error[P001]: cannot read a_folder.pipe: Is a directory\n"),
        ("binary.pipe", "error[P001]: binary.pipe is not UTF-8 text: byte 5 is 0xff\n"),
        ("x" * 300 + ".pipe", f"error[P001]: cannot read {'x' * 300}.pipe: File name too long\n"),
    ],
)
def test_files_that_cannot_be_read(command: str, file: str, message: str) -> None:
    result = _invoke(command, file)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(message)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", LOADING)
@pytest.mark.parametrize(
    ("file", "message", "line", "carets"),
    [
        ("broken.pipe", "error[P104]: `0F0x` is not an operation", "broken.pipe:3:12", "^^^^"),
        ("unfit.pipe", "error[P402]: 0F0 occurs twice", "unfit.pipe:3:12", "^^"),
    ],
)
def test_findings_are_shown_at_their_place(command: str, file: str, message: str, line: str, carets: str) -> None:
    result = _invoke(command, file)
    assert result.exit_code == 1
    if (command, file) == ("visualize", "unfit.pipe"):
        assert "1 finding: this is no valid schedule" in result.stdout
    else:
        assert result.stdout == ""
    first, place, source, marks, *_ = result.stderr.splitlines()
    assert first == message
    assert place == f"  ┌─ {line}"
    assert source == "3 │ " + Path(file).read_text().splitlines()[2]
    if file == "unfit.pipe":
        assert marks.rstrip() == "  │         ^^ the first one"
        marks = result.stderr.splitlines()[4]
    assert marks.rstrip() == "  │ " + " " * 11 + carets


@pytest.mark.usefixtures("folder")
def test_check_counts_its_findings() -> None:
    assert _invoke("check", "broken.pipe").stderr.endswith("\n1 finding in broken.pipe\n")
    result = _invoke("check", "-", input="let = 1 let = 2")
    assert result.stderr.endswith("\n2 findings in -\n")
    assert result.exit_code == 1


def test_a_good_schedule_is_one_line() -> None:
    result = _invoke("check", "1f1b", "-p", "p=8", "-p", "m=64")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "ok  1F1B: 8 ranks, 8 stages, 64 microbatches, 1,032 operations\n"


@pytest.mark.parametrize("command", ["check", "simulate", "compile"])
def test_standard_input(command: str) -> None:
    result = _invoke(command, "-", input="ranks 1 microbatches 1 rank 0: F0 B0")
    assert (result.exit_code, result.stderr) == (0, "")
    refused = _invoke(command, "-", input="ranks 1 microbatches 2 rank 0: F0 B0 F2 B1")
    assert refused.exit_code == 1
    assert "┌─ <stdin>:1:38" in refused.stderr


def test_standard_input_that_is_no_text() -> None:
    result = _invoke("check", "-", input=b"\xff\xfe")
    assert result.exit_code == 1
    assert result.stderr.startswith("error[P001]: <stdin> is not UTF-8 text: byte 0 is 0xff\n")


@pytest.mark.parametrize("command", LOADING)
@pytest.mark.parametrize("value", ["m", "m=", "m=x", "m=1.5", "m=4 4", "m==4", "=", "", "m=" + "9" * 5000])
def test_parameters_that_are_no_numbers(command: str, value: str) -> None:
    result = _invoke(command, "1f1b", "-p", value)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "write -p name=value with a whole number, as in -p m=8" in words(result.stderr)


@pytest.mark.parametrize("command", ["check", "simulate", "compile"])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["m=4,8"], "one value of m is wanted here"),
        (["m=4,4"], "'m=4,4': a value is there twice"),
        (["m=0", "m=0"], "'m=0': -p m is given twice"),
    ],
)
def test_parameters_that_are_several(command: str, values: list[str], message: str) -> None:
    result = _invoke(command, "1f1b", *(word for value in values for word in ("-p", value)))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in words(result.stderr)


@pytest.mark.parametrize("command", LOADING)
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("q=3", "error[P212]: the schedule has no parameter `q`"),
        ("m=0", "error[P211]: `microbatches` is 0; it must be at least 1"),
        ("p=-1", "error[P211]: `ranks` is -1; it must be at least 1"),
    ],
)
def test_parameters_that_do_not_fit(command: str, option: str, message: str) -> None:
    result = _invoke(command, "1f1b", "-p", option)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(message)


@pytest.mark.parametrize("command", LOADING)
@pytest.mark.parametrize("parameter", ["p", "m"])
@pytest.mark.parametrize("value", [10**9, 2**63, 10**30])
def test_parameters_beyond_reason(command: str, parameter: str, value: int) -> None:
    for name in ("1f1b", "zb_h1", "interleaved_1f1b"):
        result = _invoke(command, name, "-p", f"{parameter}={value}")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("error[P2")


@pytest.mark.parametrize("command", ["simulate", "visualize"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cost", "Q=1"], "no kind of operation is called Q"),
        (["--cost", "F"], "'F': write --cost KIND=number, as in --cost F=1.5"),
        (["--cost", "F=x"], "'F=x': write --cost KIND=number, as in --cost F=1.5"),
        (["--cost", "F=-1"], "the cost of F must be a finite number of at least 0"),
        (["--cost", "F=nan"], "the cost of F must be a finite number of at least 0"),
        (["--cost", "B=inf"], "the cost of B must be a finite number of at least 0"),
        (["--cost", "latency=3"], "no kind of operation is called latency"),
        (["--cost", "=3"], "no kind of operation is called"),
        (["--latency", "-1"], "Invalid value for '--latency'"),
        (["--latency", "nan"], "the cost of latency must be a finite number of at least 0, not nan"),
        (["--latency", "inf"], "latency must be a finite number"),
        (["--latency", "x"], "Invalid value for '--latency'"),
        (["--cost", "F=1e308"], "the cost of F must be at most 1e+100"),
    ],
)
def test_costs_that_are_none(command: str, options: list[str], message: str) -> None:
    result = _invoke(command, "1f1b", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in words(result.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ["check"],
        ["check", "1f1b", "gpipe"],
        ["check", "1f1b", "--format", "yaml"],
        ["check", "1f1b", "--max-ops", "0"],
        ["check", "1f1b", "--nonsense"],
        ["compile", "1f1b", "--target", "cobol"],
        ["frobnicate"],
    ],
)
def test_usage(arguments: list[str]) -> None:
    result = _invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: piper-dsl" in unstyle(result.stderr)


def test_max_ops() -> None:
    result = _invoke("check", "1f1b", "--max-ops", "67")
    assert result.exit_code == 1
    assert result.stderr.startswith("error[P208]: the schedule has 68 operations, more than the limit of 67\n")
    assert _invoke("check", "1f1b", "--max-ops", "68").exit_code == 0


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "arguments",
    [
        ["compile", "1f1b", "--target", "json", "-o", "a_folder.pipe"],
        ["compile", "1f1b", "--target", "python", "-o", "unfit.pipe/x.py"],
        ["compile", "1f1b", "-o", "/proc/none/x.txt"],
        ["visualize", "1f1b", "-o", "unfit.pipe/x.svg"],
        ["visualize", "1f1b", "-o", "unfit.pipe/x.txt"],
        ["visualize", "1f1b", "-o", "picture.nothing"],
    ],
)
def test_output_that_cannot_be_written(arguments: list[str]) -> None:
    result = _invoke(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    first, *_ = result.stderr.splitlines()
    assert first.startswith("error[P")
    assert arguments[-1] in first


@pytest.mark.parametrize("command", ["check", "simulate", "visualize", "compile", "run", "list", "show"])
def test_help_shows_an_example(command: str) -> None:
    result = _invoke(command, "--help")
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"Example: piper-dsl {command}" in words(result.stdout)


def test_without_arguments_help_is_shown() -> None:
    text = words(_invoke().output)
    for command in ("check", "simulate", "visualize", "compile", "run", "list", "show"):
        assert f" {command} " in text


def test_a_script_that_would_never_step_is_not_written(folder: Path) -> None:
    folder.joinpath("x.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    result = _invoke("compile", "x.csv", "--target", "python")
    assert result.exit_code == 1
    assert "no OPT: the optimizer would never step" in result.output


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", ["check", "simulate", "visualize"])
@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ("[costs]\nF = [1, 2]", "error[P003]: the costs do not fit 1F1B: 2 costs of F for 4 stages"),
        ('[costs]\n"F&B" = [1, 2]', "error[P003]: the costs do not fit 1F1B: 2 costs of F&B for 4 stages"),
        ("[memory]\noutput = [1, 2]", "error[P003]: the costs do not fit 1F1B: 2 sizes of output for 4 stages"),
        ("[memory]\noutput = -1", "error[P003]: costs.toml: the memory of output must be a finite number of at least"),
        ("[memory]\noutput = 'x'", "error[P003]: costs.toml: the memory of output must be a number, or one for every"),
        ("[memory]\nweights = 1", "error[P003]: costs.toml: unknown entries: ['weights']; its table `memory` has"),
        ("memory = 3", "error[P003]: costs.toml: unknown entries: ['3']; its table `memory` has activation"),
        ("costs = 3", "error[P003]: costs.toml: the table of every cost must be one, from name to number, not 3"),
        ("bandwidth = 0", "error[P003]: costs.toml: the bandwidth must be more than 0, not 0"),
        ("latency = [1, 2]", "error[P003]: costs.toml: latency must be one number, not [1, 2]"),
        ("bandwidth = 'x'", "error[P003]: costs.toml: bandwidth must be one number, not x"),
        (
            "[memory]\nreleased_at_input = [0, 1]",
            "error[P003]: costs.toml: released_at_input must be one number, not [0",
        ),
        (
            "[memory]\noutput = 1e308",
            "error[P003]: costs.toml: the memory of output must be at most 1e+100, not 1e+308",
        ),
        ("bandwidth = 1e-320\n[memory]\noutput = 1", "error[P003]: costs.toml: an output takes more than 1e+100 at a"),
        ("latency = 1" + "0" * 400, "error[P003]: costs.toml: int too large to convert to float"),
        ("[costs]\nF = -1", "error[P003]: costs.toml: the cost of F must be a finite number of at least 0"),
    ],
)
def test_profiles_that_cannot_be_used(command: str, profile: str, message: str) -> None:
    Path("costs.toml").write_text(profile)
    result = _invoke(command, "1f1b", "--costs", "costs.toml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("name", "profile"), [("costs.toml", "[costs]\nF = 3.0\n"), ("costs.json", '{"costs": {"F": 3.0}}')]
)
def test_a_mark_of_the_byte_order_is_read_over(name: str, profile: str) -> None:
    Path(name).write_text(profile, encoding="utf-8-sig")
    result = _invoke("simulate", "1f1b", "-p", "p=1", "-p", "m=1", "--costs", name)
    assert "makespan   5\n" in result.stdout


@pytest.mark.usefixtures("folder")
def test_a_profile_that_is_no_text() -> None:
    result = _invoke("simulate", "1f1b", "--costs", "binary.pipe")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error[P001]: binary.pipe is not UTF-8 text: byte 5 is 0xff\n")


@pytest.mark.usefixtures("folder")
def test_compare_says_which_schedule_a_profile_does_not_fit() -> None:
    Path("costs.toml").write_text("[costs]\nF = [1, 2, 3, 4]")
    result = _invoke("compare", "1f1b", "interleaved_1f1b", "--costs", "costs.toml")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "the costs do not fit interleaved 1F1B: 4 costs of F for 8 stages" in words(result.stdout)


@pytest.mark.parametrize("command", ["check", "simulate"])
@pytest.mark.parametrize(
    ("limit", "code", "message"),
    [
        ("3", 1, "error[P601]: rank 0 holds 4 activations here, more than its limit of 3"),
        ("4,3,2,0.5", 1, "error[P601]: rank 3 holds 1 activations here, more than its limit of 0.5"),
        ("4,3", 2, "2 memory limits for 4 ranks"),
        ("nan", 2, "'nan': write --memory-limit 8, or one number per rank: 8,6,4,2"),
        ("much", 2, "'much': write --memory-limit 8, or one number per rank: 8,6,4,2"),
    ],
)
def test_memory_limits(command: str, limit: str, code: int, message: str) -> None:
    result = _invoke(command, "1f1b", "--memory-limit", limit)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in words(result.stderr)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("chimera", "-p", "p=4", "-p", "m=4"), "stages with copies on several ranks"),
        (("tied.pipe",), "tied stages"),
    ],
)
def test_a_script_that_would_not_sum_gradients_is_refused(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tied.pipe").write_text("ranks 2\nmicrobatches 1\ntie 0, 1\nrank r { F0 B0 OPT }\n")
    result = _invoke("compile", *arguments, "--target", "python")
    assert result.exit_code == 1
    assert f"error[P702]: target python: the script does not sum the gradients of {words}" in result.output


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "[/r].pipe"],
        ["simulate", "[/r].pipe"],
        ["compare", "[/r].pipe"],
        ["visualize", "[/r].pipe", "-o", "[/r].svg"],
        ["compile", "[/r].pipe", "--target", "json", "-o", "[/r].json"],
    ],
)
def test_names_that_look_like_markup_are_names(arguments: list[str]) -> None:
    Path("[/r].pipe").parent.mkdir(exist_ok=True)
    Path("[").mkdir(exist_ok=True)
    Path("[/r].pipe").write_text('schedule "a [/b] [red]c[/red]"\nranks 1\nmicrobatches 1\nrank 0: F0 B0\n')
    result = _invoke(*arguments)
    assert result.exit_code == 0, result.stderr
    assert "a [/b] [red]c[/red]" in result.stdout or "wrote [/r]" in result.stdout


@pytest.mark.usefixtures("folder")
def test_a_graph_with_options_of_time() -> None:
    result = _invoke("visualize", "1f1b", "--graph", "needs", "-o", "g.svg", "--costs", "nofile")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "a graph shows no time" in words(result.stderr)


def test_a_part_that_is_no_number() -> None:
    result = _invoke("simulate", "1f1b", "--released-at-input", "nan")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "released_at_input must be a finite number" in words(result.stderr)


@pytest.mark.parametrize("command", LOADING)
def test_a_measured_timeline_where_a_schedule_is_asked_for(command: str, tmp_path: Path) -> None:
    (tmp_path / "measured.json").write_text("{}")
    result = _invoke(command, str(tmp_path / "measured.json"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert ("this is no measured timeline" if command == "visualize" else "is no schedule") in words(result.stderr)
