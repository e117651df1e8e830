"""Reading PyTorch's CSVs: both forms, whatever their layout; every cell is an operation as a whole or is reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from csv_orders import LOWERED, places, read, refusal, rows, text_of
from typer.testing import CliRunner

import piper_dsl as piper
from piper_dsl.cli.main import app
from piper_dsl.interop import write_csv

PLAIN = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
ROWS = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
HELP = "a cell is a token such as 0F0, 2I1, 1SEND_F3 or (4F4;3B0)OVERLAP_F_B; there is no header"


def load(folder: Path, data: bytes) -> piper.Schedule:
    file = folder / "x.csv"
    file.write_bytes(data)
    return piper.load(str(file))


# --- layout ------------------------------------------------------------------------------------


def test_compute_only():
    schedule = read(PLAIN, "/some/where/my.order.csv")
    assert rows(schedule) == ROWS
    assert (schedule.name, schedule.ranks, schedule.stages, schedule.microbatches) == ("my.order", 2, 2, 2)
    assert schedule.placement.rank_of.tolist() == [[0, 0], [1, 1]]
    assert list(schedule.graph.edges) == [(0, 1)]
    assert schedule.ties == ()
    assert dict(schedule.parameters) == {}
    assert piper.check(schedule) == ()


@pytest.mark.parametrize("name", LOWERED)
def test_lowered_form(name):
    order = LOWERED[name]
    schedule = read(text_of(order["ranks"]))
    assert rows(schedule) == order["ranks"]
    assert (schedule.ranks, schedule.stages, schedule.microbatches) == (order["p"], 2 * order["p"], order["m"])
    assert schedule.placement.rank_of[:, 0].tolist() == [*range(order["p"])] * 2


@pytest.mark.parametrize(
    "data",
    [
        PLAIN.encode(),
        PLAIN.rstrip("\n").encode(),
        PLAIN.replace("\n", "\r\n").encode(),
        PLAIN.replace("\n", "\r\n").rstrip("\r\n").encode(),
        b"\xef\xbb\xbf" + PLAIN.encode(),
        b"\xef\xbb\xbf" + PLAIN.replace("\n", "\r\n").encode(),
        PLAIN.replace(",", "\t, ").encode(),
        b"  0F0 ,0F1\t, 0B0,0B1  \n\t1F0,1B0 , 1F1,1B1",
        PLAIN.encode() + b"\n\n \n\r\n",
        PLAIN.encode() + b"\n,,\n",
        b"0F0,0F1,0B0,0B1,,,,\n,1F0,1B0,,1F1,1B1\n",
        b"0F0,0F1,,0B0,,0B1\n1F0,1B0,1F1,1B1,\n",
        b'"0F0","0F1","0B0","0B1"\n"1F0","1B0","1F1","1B1"\n',
        b'"0F0",0F1,"",0B0,0B1\n1F0, "1B0" ,1F1,1B1\n',
    ],
)
def test_layout_does_not_matter(tmp_path, data):
    schedule = load(tmp_path, data)
    assert rows(schedule) == ROWS
    assert piper.check(schedule) == ()
    timeline = piper.simulate(schedule)
    assert timeline.makespan == 9
    assert [rank.idle for rank in timeline.ranks] == [3, 3]
    for index in range(len(schedule)):
        assert schedule.origin.span(index).text == str(schedule.operation(index))


@pytest.mark.parametrize("empty", ["", " ", "\t\r", ",,,", '""', " , ,"])
def test_an_empty_row_in_the_middle_is_a_rank_that_does_nothing(empty):
    schedule = read(f"0F0,0B0\n{empty}\n1F0,1B0\n")
    assert rows(schedule) == [["0F0", "0B0"], [], ["1F0", "1B0"]]
    assert schedule.placement.rank_of.tolist() == [[0], [2]]
    assert piper.check(schedule) == ()
    timeline = piper.simulate(schedule)
    assert timeline.makespan == 6
    assert [(rank.busy, rank.idle) for rank in timeline.ranks] == [(3, 3), (0, 6), (3, 3)]


@pytest.mark.parametrize("empty", ["", ",,"])
def test_an_empty_row_at_the_start_is_a_rank_that_does_nothing(empty):
    """As PyTorch reads it: a row is the rank of its number, and findings say the same number."""
    schedule = read(f"{empty}\n0F0,0B0\n")
    assert rows(schedule) == [[], ["0F0", "0B0"]]
    assert schedule.placement.rank_of.tolist() == [[1]]


def test_cells_keep_their_place():
    schedule = read(" 0F0,, 0B0\n\n1F0 ,1B0")
    spans = [schedule.origin.span(index) for index in range(4)]
    assert [(span.line, span.column, span.end_column) for span in spans] == [
        (1, 2, 5),
        (1, 8, 11),
        (3, 1, 4),
        (3, 6, 9),
    ]


def test_overlapped_cells():
    schedule = read("0F0,1F0,0F1,(1F1;1B0)OVERLAP_F_B, ( 0F2 ; 0B0 )OVERLAP_F_B ,1F2,1B1,0B1,1B2,0B2")
    assert rows(schedule)[0][3:5] == ["(1F1;1B0)OVERLAP_F_B", "(0F2;0B0)OVERLAP_F_B"]
    assert schedule.joined.tolist() == [False, False, False, False, True, False, True, *[False] * 5]
    assert schedule.origin.span(4).text == "(1F1;1B0)OVERLAP_F_B"
    assert schedule.origin.span(6).text == "( 0F2 ; 0B0 )OVERLAP_F_B"
    assert piper.check(schedule) == ()
    timeline = piper.simulate(schedule)
    assert timeline.makespan == 18
    assert timeline.start[3:7].tolist() == [3, 3, 6, 6]


def test_standard_input_is_read_as_csv_by_import():
    result = CliRunner().invoke(app, ["import", "-"], input=PLAIN)
    assert result.exit_code == 0, result.output
    assert "rank 1 {\n  for i in 0:2 { F[i]  B[i] }\n}\n" in result.stdout


# --- what is no operation ----------------------------------------------------------------------

WRONG = [
    "0F0x", "1FOO0", "0f0", "0b1", "-1F0", "0F-1", "+0F0", "0F", "0B", "0SEND_F", "0UNSHARD0", "0REDUCE_GRAD1",
    "F0", "0", "F", "0F 0", "0 F0", "0F0 0B0", "0F0;0B0", "0F0.0", "0F1e1", "0x0F0", "0F0!", "0send_f0", "0SENDF0",
    "0FREE0", "0BW0", "0OVERLAP_F_B0", "nan", "None", "0F\u0660", "\u0660F0", "0F\uff10", "0F0\u200b",
    "(0F0;0B0)", "(0F0)OVERLAP_F_B", "()OVERLAP_F_B", "(;)OVERLAP_F_B", "(0F0;)OVERLAP_F_B", "0F0;0B0)OVERLAP_F_B",
    "(0F0;0B0;0F1)OVERLAP_F_B", "(0F0;0B0x)OVERLAP_F_B", "(0Q0;0B0)OVERLAP_F_B", "(0F0;0B0)OVERLAP_F_Bx",
    "(0F0;0B0)OVERLAP", "(0F0;0B)OVERLAP_F_B", "(0F0 0B0)OVERLAP_F_B", "((0F0;0B0))OVERLAP_F_B", "0F9999999999",
]  # fmt: skip


@pytest.mark.parametrize("token", WRONG)
def test_what_is_no_operation(token):
    """Refused as a whole, in the first cell and later, and never read as its beginning."""
    (finding,) = refusal(f"{token},0F0,0B0\n")
    assert places([finding]) == [("P104", 1, 1, 1 + len(token), token)]
    assert finding.message == f"`{token}` in row 1, cell 1 is not an operation"
    assert finding.help == HELP
    (finding,) = refusal(f"0F0,0B0\n\n1F0, {token}\t,1B0\n")
    assert places([finding]) == [("P104", 3, 6, 6 + len(token), token)]
    assert finding.message == f"`{token}` in row 3, cell 2 is not an operation"


@pytest.mark.parametrize("token", ["0R0", "0OPT", "0COMPUTE0"])
def test_what_is_no_token_of_pytorch(token):
    """PyTorch has neither recomputation nor optimizer steps: its own parser refuses them, and so does export."""
    (finding,) = refusal(f"0F0,{token},0B0\n")
    assert places([finding]) == [("P104", 1, 5, 5 + len(token), token)]


@pytest.mark.parametrize(
    "text",
    ['"0F0,0B0"\n', '"0F0,0B0\n', '0F0",0B0\n', '"0F0,0B0,0F1"\n,0B1\n'],
    ids=["one-cell", "open", "end", "ragged"],
)
def test_quotes_that_are_not_round_one_cell(text):
    """A quoted comma is part of the cell, which is then no operation; a quote alone is none either."""
    assert {finding.code for finding in refusal(text)} == {"P104"}


@pytest.mark.parametrize("pair", ["1F0;2F0", "1B0;2B0", "0F1;2I0", "0SEND_F0;0F1", "1UNSHARD;1F0"])
def test_an_overlap_that_cannot_be_written_is_not_read(pair):
    """Nothing is read without a word that would be refused when the same file is written again."""
    text = f"0F0,({pair})OVERLAP_F_B,3F0\n"
    try:
        schedule = read(text)
    except piper.PipeError as error:
        assert places(error.diagnostics) == [("P104", 1, 5, 18 + len(pair), f"({pair})OVERLAP_F_B")]  # noqa: PT017
    else:
        assert write_csv(schedule) == text


def test_every_bad_cell_is_reported_in_one_run():
    findings = refusal("0F0, 0Q0 ,0B0,,0B1x\r\n1F0,1B0\r\n\r\n2f0,(2F1;2B)OVERLAP_F_B,2B0\r\n")
    assert places(findings) == [
        ("P104", 1, 6, 9, "0Q0"),
        ("P104", 1, 16, 20, "0B1x"),
        ("P104", 4, 1, 4, "2f0"),
        ("P104", 4, 5, 24, "(2F1;2B)OVERLAP_F_B"),
    ]
    assert [finding.message for finding in findings] == [
        "`0Q0` in row 1, cell 2 is not an operation",
        "`0B1x` in row 1, cell 5 is not an operation",
        "`2f0` in row 4, cell 1 is not an operation",
        "`(2F1;2B)OVERLAP_F_B` in row 4, cell 2 is not an operation",
    ]


def test_many_bad_cells_stay_readable():
    assert len(refusal(text_of([[f"0Q{i}" for i in range(100)]]))) == 100
    findings = refusal(text_of([[f"0Q{i}" for i in range(1000)]] * 10))
    assert [finding.span.text for finding in findings[:100]] == [f"0Q{i}" for i in range(100)]
    assert len(findings) <= 101


def test_a_header_is_reported_cell_by_cell():
    findings = refusal("rank,step 0\n0F0,0B0\n")
    assert places(findings) == [("P104", 1, 1, 5, "rank"), ("P104", 1, 6, 12, "step 0")]
    assert {finding.help for finding in findings} == {HELP}


@pytest.mark.parametrize("data", [b"", b"\n\n", b",,\n,\n", b" \t\r\n", b"\xef\xbb\xbf", b'"",""\n'])
def test_no_operations_at_all(tmp_path, data):
    with pytest.raises(piper.PipeError) as caught:
        load(tmp_path, data)
    (finding,) = caught.value.diagnostics
    assert finding.code == "P101"
    assert finding.message == f"{tmp_path / 'x.csv'} has no operations"
    assert (finding.span.line, finding.span.column) == (1, 1)


def test_a_stage_on_two_rows():
    (finding,) = refusal("0F0,0F1\n1F0,1B0\n0B0, 0B1\n")
    assert places([finding]) == [("P403", 3, 1, 4, "0B0")]
    assert finding.message == "stage 0 is on row 1 and on row 3"
    assert finding.help == "PyTorch's CSV has every stage on one rank; copies of a stage need a .pipe file"


def test_not_utf8(tmp_path):
    with pytest.raises(piper.PipeError) as caught:
        load(tmp_path, b"0F0,\xff,0B0")
    (finding,) = caught.value.diagnostics
    assert (finding.code, finding.message) == ("P001", f"{tmp_path / 'x.csv'} is not UTF-8 text: byte 4 is 0xff")


def test_a_csv_has_no_parameters(tmp_path):
    file = tmp_path / "x.csv"
    file.write_text(PLAIN)
    with pytest.raises(piper.PipeError) as caught:
        piper.load(str(file), m=4)
    (finding,) = caught.value.diagnostics
    assert (finding.code, finding.message) == ("P212", "a CSV has no parameters, so none can be `m`")
    result = CliRunner().invoke(app, ["check", str(file), "-p", "p=2"])
    assert result.exit_code == 1
    assert "a CSV has no parameters, so none can be `p`" in result.stderr


# --- size --------------------------------------------------------------------------------------


def test_many_cells():
    ranks, microbatches = 50, 1000
    order = [[f"{rank}{kind}{i}" for kind in "FB" for i in range(microbatches)] for rank in range(ranks)]
    schedule = read(text_of(order))
    assert len(schedule) == 100_000
    assert rows(schedule) == order
    assert schedule.origin.span(99_999).text == "49B999"
    assert piper.check(schedule) == ()
    assert piper.simulate(schedule).makespan == 3 * (microbatches + ranks - 1)


@pytest.mark.parametrize("token", ["999999999F0", "0F999999999", "99999999UNSHARD"])
def test_a_huge_number_is_refused_in_little_memory(tmp_path, token):
    """One typo must not take the memory of a billion stages; the process gets 2 GiB and 20 s."""
    file = tmp_path / "x.csv"
    file.write_text(f"0F0,{token},0B0\n")
    code = (
        "import resource, sys, piper_dsl as piper\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        "try:\n    print(*(f.code for f in piper.check(piper.load(sys.argv[1]))))\n"
        "except piper.PipeError as error:\n    print(*(f.code for f in error.diagnostics))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, file], capture_output=True, text=True, timeout=20, check=False)
    assert done.stderr == ""
    assert done.stdout.startswith("P")
