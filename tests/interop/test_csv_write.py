"""Writing PyTorch's CSVs: what was read comes back as it was; what a CSV cannot say is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from csv_orders import LOWERED, REFERENCE, SAYABLE, expanded, facts, places, read, refusal, rows, text_of
from hypothesis import given, settings
from typer.testing import CliRunner

import piper_dsl as piper
from piper_dsl.cli.main import app
from piper_dsl.interop import write_csv
from piper_dsl.testing import WrittenSchedule, schedules

ORDERS = {**SAYABLE, **LOWERED}


def unsayable(text: str, *, lossy: bool = False) -> list[piper.Diagnostic]:
    """What writing a `.pipe` text as CSV is refused for."""
    with pytest.raises(piper.PipeError) as caught:
        write_csv(expanded(text), lossy=lossy)
    return [*caught.value.diagnostics]


def run(*arguments: str, code: int = 0, input: str | None = None) -> str:
    """The output of a command; what it says on standard error where it is to fail."""
    result = CliRunner().invoke(app, [*arguments], input=input)
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout


# --- what was read -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ORDERS)
def test_import_then_export_is_the_identity(name, tmp_path):
    text = text_of(ORDERS[name]["ranks"])
    schedule = read(text)
    assert rows(schedule) == ORDERS[name]["ranks"]
    assert write_csv(schedule) == text
    assert write_csv(schedule, lossy=True) == text
    file, out = tmp_path / "x.csv", tmp_path / "deep" / "y.csv"
    file.write_text(text)
    assert run("compile", str(file), "--target", "torch-csv") == text
    run("compile", str(file), "--target", "torch-csv", "-o", str(out))
    assert out.read_bytes() == text.encode()


def test_the_only_reference_order_that_a_csv_cannot_say_has_copies():
    assert set(REFERENCE) - set(SAYABLE) == {"dualpipe"}
    codes = [finding.code for finding in refusal(text_of(REFERENCE["dualpipe"]["ranks"]))]
    assert codes == ["P403"]


def test_layout_is_not_kept():
    assert write_csv(read(' 0F0 ,, 0B0\r\n,,\r\n"1F0",1B0\r\n\r\n')) == "0F0,0B0\n\n1F0,1B0\n"
    assert write_csv(read("0F0,1F0,0F1,( 1F1 ; 1B0 )OVERLAP_F_B")) == "0F0,1F0,0F1,(1F1;1B0)OVERLAP_F_B\n"
    assert write_csv(read("0F0,1F0,0F1,(1B0;1F1)OVERLAP_F_B")) == "0F0,1F0,0F1,(1B0;1F1)OVERLAP_F_B\n"


@settings(deadline=None, max_examples=200)
@given(schedules(max_ranks=4, max_stages=5, copies=False, graphs=False, ties=False, recompute=False, optimizer=False))
def test_any_order_that_a_csv_can_say_comes_back(written: WrittenSchedule):
    """Or is refused; ranks that own nothing, wherever they are, are not dropped without a word."""
    schedule = written.schedule
    try:
        text = write_csv(schedule)
    except piper.PipeError as error:
        assert {finding.code for finding in error.diagnostics} == {"P901"}  # noqa: PT017 - both ways are fine
        return
    assert facts(read(text)) == facts(schedule)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_rank_without_operations_comes_back(rank):
    """Behind the last row it cannot be told from blank lines, so that one may be refused instead."""
    others = [r for r in range(3) if r != rank]
    text = f"ranks 3\nmicrobatches 1\nstages 2\nplace s on {others[0]} if s == 0 else {others[1]}\n"
    schedule = expanded(text + f"rank {others[0]}: 0F0 0B0\nrank {others[1]}: 1F0 1B0\nrank {rank} {{}}\n")
    assert piper.check(schedule) == ()
    try:
        text = write_csv(schedule)
    except piper.PipeError as error:
        assert ([f.code for f in error.diagnostics], rank) == (["P901"], 2)  # noqa: PT017
    else:
        assert facts(read(text)) == facts(schedule)


# --- what a CSV cannot say ---------------------------------------------------------------------

STEPPED = "ranks 2\nmicrobatches 1\nrank 0: 0F0 0B0 0OPT\nrank 1: 1F0 1B0 1OPT\n"


def test_optimizer_steps(tmp_path):
    (finding,) = unsayable(STEPPED)
    assert places([finding]) == [("P901", 3, 17, 21, "0OPT")]
    assert (finding.message, finding.help) == ("PyTorch's CSV has no optimizer steps", "`--lossy` leaves them out")
    assert write_csv(expanded(STEPPED), lossy=True) == "0F0,0B0\n1F0,1B0\n"
    file, out = tmp_path / "x.pipe", tmp_path / "x.csv"
    file.write_text(STEPPED)
    message = run("compile", str(file), "--target", "torch-csv", "-o", str(out), code=1)
    assert "error[P901]: PyTorch's CSV has no optimizer steps" in message
    assert f"{file}:3:17" in message
    assert "`--lossy` leaves them out" in message
    assert not out.exists()
    assert run("compile", str(file), "--target", "torch-csv", "--lossy") == "0F0,0B0\n1F0,1B0\n"


def test_optimizer_steps_between_slots_and_in_the_last_place():
    text = "ranks 1\nmicrobatches 2\nstages 2\nrank 0: 0F0 1F0 0F1 1F1 & 1B0 1B1 1OPT 0B0 0B1 0OPT\n"
    assert write_csv(expanded(text), lossy=True) == "0F0,1F0,0F1,(1F1;1B0)OVERLAP_F_B,1B1,0B0,0B1\n"


@pytest.mark.parametrize("lossy", [False, True])
def test_recomputation(lossy):
    (finding,) = unsayable("ranks 1\nmicrobatches 1\nrank 0: 0F0 0R0 0B0\n", lossy=lossy)
    assert places([finding]) == [("P901", 3, 13, 16, "0R0")]
    assert (finding.message, finding.help) == ("PyTorch's CSV has no recomputation", None)


@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize("name", ["dualpipe", "chimera"])
def test_copies(name, lossy):
    with pytest.raises(piper.PipeError) as caught:
        write_csv(piper.load(name, p=4, m=8), lossy=lossy)
    assert "PyTorch's CSV cannot place copies of a stage on several ranks" in str(caught.value)
    assert {finding.code for finding in caught.value.diagnostics} == {"P901"}
    options = ("-p", "p=4", "-p", "m=8", "--target", "torch-csv", *(["--lossy"] * lossy))
    assert "cannot place copies of a stage" in run("compile", name, *options, code=1)


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ("0F0 0F1 0I0 & 0I1 0W0 0W1", (17, 20, "0I0")),
        ("0F0 & 0F1 0B0 0B1", (9, 12, "0F0")),
        ("0F0 0F1 & 0I0 0W0 0B1", (13, 16, "0F1")),
        ("0F0 0F1 0B0 & 0B1", (17, 20, "0B0")),
        ("0F0 0I0 0F1 & 0W0 0B1", (17, 20, "0F1")),
        ("0F0 0F1 0F2 & 0B0 & 0B1 0B2", (17, 20, "0F2")),
    ],
)
def test_other_overlaps(row, place):
    microbatches = 3 if "0F2" in row else 2
    text = f"ranks 1\nmicrobatches {microbatches}\nrank 0: {row}\n"
    assert piper.check(expanded(text)) == ()
    (finding,) = unsayable(text, lossy=True)
    assert places([finding]) == [("P901", 3, *place)]
    assert finding.message == "PyTorch's CSV overlaps one F with one B only"


def test_other_stage_graphs():
    """PyTorch's stages are a chain: a CSV of a graph would be read back as another schedule."""
    text = "ranks 3\nmicrobatches 1\nedge 0 -> 2\nedge 1 -> 2\nrank 0: 0F0 0B0\nrank 1: 1F0 1B0\nrank 2: 2F0 2B0\n"
    assert piper.check(expanded(text)) == ()
    assert [finding.code for finding in unsayable(text, lossy=True)] == ["P901"]


def test_ties():
    """PyTorch's CSV has no shared parameters either; leaving them out changes what is trained."""
    text = "ranks 2\nmicrobatches 1\ntie 0, 1\nrank 0: 0F0 0B0\nrank 1: 1F0 1B0\n"
    assert piper.check(expanded(text)) == ()
    assert [finding.code for finding in unsayable(text)] == ["P901"]


def test_everything_at_once_is_reported_at_once():
    text = "ranks 2\nmicrobatches 2\nstages 1\nplace s, i on i\nrank 0: 0F0 0R0 0B0 0OPT\nrank 1: 0F1 0B1 0OPT\n"
    found = [finding.message for finding in unsayable(text)]
    assert found == [
        "PyTorch's CSV has no optimizer steps",
        "PyTorch's CSV has no recomputation",
        "PyTorch's CSV cannot place copies of a stage on several ranks",
    ]


def test_a_schedule_that_does_not_check_is_not_written(tmp_path: Path):
    file, out = tmp_path / "x.csv", tmp_path / "y.csv"
    file.write_text("0F0,0F1,0B0\n")
    message = run("compile", str(file), "--target", "torch-csv", "-o", str(out), code=1)
    assert "stage 0 has no backward (B, or I and W) for microbatch 1" in message
    assert not out.exists()
