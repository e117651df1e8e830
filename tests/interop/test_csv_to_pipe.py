"""`to_pipe` and `piper-dsl import`: a readable file that expands to the same schedule."""

from __future__ import annotations

import pytest
from csv_orders import HERE, LOWERED, REFERENCE, SAYABLE, expanded, facts, read, text_of
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import piper_dsl as piper
from piper_dsl.cli.main import app
from piper_dsl.diagnostics import Source
from piper_dsl.interop.pipe_text import to_pipe
from piper_dsl.syntax.formatter import format_source
from piper_dsl.testing import WrittenSchedule, schedules

ORDERS = {**SAYABLE, **LOWERED}


def same(schedule: piper.Schedule) -> str:
    """The text of a schedule, which expands to it."""
    text = to_pipe(schedule)
    again = expanded(text)
    assert facts(again) == facts(schedule)
    assert again.name == schedule.name
    return text


def canonical(schedule: piper.Schedule) -> None:
    """The text of a schedule is as the formatter would leave it."""
    text = to_pipe(schedule)
    assert format_source(Source("t.pipe", text)) == text


@pytest.mark.parametrize("name", ORDERS)
def test_reference_orders(name, tmp_path):
    text = text_of(ORDERS[name]["ranks"])
    schedule = read(text, f"{name}.csv")
    printed = same(schedule)
    file, out = tmp_path / f"{name}.csv", tmp_path / "new" / f"{name}.pipe"
    file.write_text(text)
    result = CliRunner().invoke(app, ["import", str(file)])
    assert (result.exit_code, result.stdout, result.stderr) == (0, printed, "")
    result = CliRunner().invoke(app, ["import", str(file), "-o", str(out)])
    assert (result.exit_code, result.stdout.replace("\n", "")) == (0, f"wrote {out}")
    assert out.read_text() == printed
    loaded = piper.load(str(out))
    assert facts(loaded) == facts(schedule)
    assert piper.check(loaded) == piper.check(schedule) == ()
    assert piper.simulate(loaded).makespan == piper.simulate(schedule).makespan


@pytest.mark.parametrize("name", ORDERS)
def test_reference_orders_are_canonical(name, tmp_path):
    canonical(read(text_of(ORDERS[name]["ranks"])))
    file, out = tmp_path / "x.csv", tmp_path / "x.pipe"
    file.write_text(text_of(ORDERS[name]["ranks"]))
    assert CliRunner().invoke(app, ["import", str(file), "-o", str(out)]).exit_code == 0
    assert CliRunner().invoke(app, ["fmt", "--check", str(out)]).exit_code == 0


@pytest.mark.parametrize("name", piper.library_names())
def test_library(name):
    schedule = piper.load(name, p=4, m=8)
    text = same(schedule)
    result = CliRunner().invoke(app, ["compile", name, "-p", "p=4", "-p", "m=8", "--target", "pipe"])
    assert (result.exit_code, result.stdout) == (0, text)


@pytest.mark.parametrize("name", piper.library_names())
def test_library_is_canonical(name):
    canonical(piper.load(name, p=4, m=8))


@settings(deadline=None, max_examples=300)
@given(schedules(max_ranks=4, max_stages=6, max_microbatches=5))
def test_any_schedule(written: WrittenSchedule):
    same(written.schedule)


@settings(deadline=None, max_examples=300)
@given(schedules(max_ranks=4, max_stages=6, max_microbatches=5))
def test_any_schedule_is_canonical(written: WrittenSchedule):
    canonical(written.schedule)


@pytest.mark.parametrize("name", ["1f1b", "zb_h1"])
def test_golden(name):
    text = same(read(text_of(REFERENCE[name]["ranks"]), f"{name}.csv"))
    assert text == (HERE / "golden" / f"{name}.pipe").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("row", "body"),
    [
        ("0F0,0F1,0F2,0B0,0B1,0B2", "F[0:3]\nB[0:3]"),
        ("0F0,0B0", "F[0]\nB[0]"),
        ("0F0,0F1,0B1,0B0", "F[0:2]\nB[1]\nB[0]"),
        ("0F0,0I0,0W0,0F1,0I1,0W1,0F2,0I2,0W2", "for i in 0:3 { F[i]  I[i]  W[i] }"),
        ("0F1,0B1,0F2,0B2,0F0,0B0", "for i in 1:3 { F[i]  B[i] }\nF[0]\nB[0]"),
        ("0F2,0F0,0F3,0F1,0B0,0B1,0B2,0B3", "for i in 0:2 { F[i + 2]  F[i] }\nB[0:4]"),
        (
            "0F0,0F1,1F0,1F1,(0F2;1B0)OVERLAP_F_B,(0F3;1B1)OVERLAP_F_B",
            "F[0:2]@0\nF[0:2]@1\nfor i in 0:2 { F[i + 2]@0 & B[i]@1 }",
        ),
        ("0UNSHARD,0F0,0F1,0RESHARD,0UNSHARD,0RESHARD", "UNSHARD@0\nF[0:2]\nRESHARD@0\nUNSHARD@0\nRESHARD@0"),
    ],
)  # fmt: skip
def test_folding(row, body):
    text = same(read(row + "\n"))
    assert text.endswith("rank 0 {\n" + "".join(f"  {line}\n" for line in body.split("\n")) + "}\n")


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.sampled_from("FBIW"), st.integers(0, 1), st.integers(0, 4)), min_size=1, max_size=30))
def test_folding_of_any_row(operations):
    """Also of rows that do not check: repeated and in any order."""
    same(read(",".join(f"{stage}{kind}{microbatch}" for kind, stage, microbatch in operations) + "\n"))


def test_folding_is_short():
    """A regular row takes as many lines for a thousand microbatches as for eight."""
    order = [[f"{rank}{kind}{i}" for i in range(1000) for kind in "FB"] for rank in range(3)]
    text = same(read(text_of(order)))
    assert text.count("for i in 0:1000 { F[i]  B[i] }\n") == 3
    assert len(text.splitlines()) == 16


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a b", "ä", "{x}", "#1", "a'b", "a\tb", "a\\", 'a\\"b', "-"])
def test_any_file_name_is_a_name(name, tmp_path):
    file = tmp_path / f"{name}.csv"
    file.write_text("0F0,0B0\n")
    result = CliRunner().invoke(app, ["import", str(file)])
    assert result.exit_code == 0, result.output
    assert facts(expanded(result.stdout)) == facts(read("0F0,0B0\n"))
    assert format_source(Source("t.pipe", result.stdout)) == result.stdout


@pytest.mark.parametrize("stages", [16, 100, 400])
def test_placements_without_a_rule(stages):
    """Pairs of stages in turns on two ranks: as many runs as half the stages."""
    there, back = [f"{s}F0" for s in range(stages)], [f"{s}B0" for s in reversed(range(stages))]
    order = [[cell for cell in there + back if int(cell[:-2]) // 2 % 2 == rank] for rank in (0, 1)]
    schedule = read(text_of(order))
    assert piper.check(schedule) == ()
    same(schedule)


def test_a_bad_csv_is_reported_and_nothing_written(tmp_path):
    file, out = tmp_path / "x.csv", tmp_path / "x.pipe"
    file.write_text("0F0,0B0\n1F0,1Q0\n")
    result = CliRunner().invoke(app, ["import", str(file), "-o", str(out)])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "error[P104]: `1Q0` in row 2, cell 2 is not an operation" in result.stderr
    assert f"{file}:2:5" in result.stderr
    assert not out.exists()
    result = CliRunner().invoke(app, ["import", str(tmp_path / "none.csv")])
    assert result.exit_code == 1
    assert "error[P001]" in result.stderr
