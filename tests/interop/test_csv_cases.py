"""Reported cases (A1, A2, A7, A8, A11, A12, B3, B19, D2), through Python and through the command line."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from csv_orders import LOWERED, REFERENCE, expanded, places, read, refusal, rows, text_of
from typer.testing import CliRunner

import piper_dsl as piper
from piper_dsl import Kind
from piper_dsl.cli.main import app
from piper_dsl.interop import write_csv
from piper_dsl.interop.pipe_text import to_pipe
from piper_dsl.lower import Code

QUEUED = ("buffered", "capacity=1", "direction", "pair", "rank", "blocking")


@pytest.fixture
def accepted(tmp_path):
    """``accepted(text)``: the schedule of a CSV that Python and the command line accept alike."""

    def check(text: str) -> piper.Schedule:
        file = tmp_path / "x.csv"
        file.write_text(text, encoding="utf-8")
        schedule = piper.load(str(file))
        assert piper.check(schedule) == ()
        report = _command("check", file, "--format", "json", code=0)
        assert json.loads(report) == {
            "ok": True,
            "schedule": {
                "name": "x",
                "ranks": schedule.ranks,
                "stages": schedule.stages,
                "microbatches": schedule.microbatches,
                "operations": len(schedule),
            },
            "diagnostics": [],
        }
        timeline = piper.simulate(schedule)
        document = json.loads(_command("simulate", file, "--format", "json", code=0))
        assert document["makespan"] == timeline.makespan
        assert [rank["idle"] for rank in document["ranks"]] == [rank.idle for rank in timeline.ranks]
        return schedule

    return check


@pytest.fixture
def refused(tmp_path):
    """``refused(text)``: code, line, columns and text of every finding, the same by the command line."""

    def check(text: str, *options: str) -> list[tuple[str, int, int, int, str]]:
        file = tmp_path / "x.csv"
        file.write_text(text, encoding="utf-8")
        findings = refusal(text)
        reported = json.loads(_command("check", file, "--format", "json", code=1))["diagnostics"]
        keys = ("code", "message", "file", "line", "column", "end_column")
        assert [tuple(entry[key] for key in keys) for entry in reported] == [
            (f.code, f.message, str(file), f.span.line, f.span.column, f.span.end_column) for f in findings
        ]
        shown = CliRunner().invoke(app, ["check", str(file)])
        assert shown.exit_code == 1
        for finding in findings:
            assert f"error[{finding.code}]" in shown.stderr
            assert finding.message in shown.stderr
            assert f"{file}:{finding.span.line}:{finding.span.column}" in shown.stderr
        for command in (["simulate"], ["compile", "--target", "pipe"]):
            assert CliRunner().invoke(app, [command[0], str(file), *command[1:]]).exit_code == 1
        return places(findings)

    return check


def _command(command: str, file: Path, *options: str, code: int) -> str:
    result = CliRunner().invoke(app, [command, str(file), *options])
    assert result.exit_code == code, result.output
    assert result.stderr == ""
    return result.stdout


def _transfers(schedule: piper.Schedule) -> list[tuple[str, int, int]]:
    """What crosses ranks: the kind, and the stage at either end."""
    program = piper.lower(schedule)
    sends = [i for rank in range(program.ranks) for i in program.row(rank) if i.code in (Code.SEND_F, Code.SEND_B)]
    return sorted((send.code.name[-1], send.stage, send.peer_stage) for send in sends)


A1 = "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1W0,1F1,1I1,1W1\n"


def test_a1_split_backwards(accepted):
    schedule = accepted(A1)
    assert Counter((stage, Kind(kind)) for stage, kind in zip(schedule.stage.tolist(), schedule.kind, strict=True)) == {
        (stage, kind): 2 for stage in (0, 1) for kind in (Kind.F, Kind.I, Kind.W)
    }
    assert piper.simulate(schedule).makespan == 8


A2 = " 0F0 , 0F1 ,, 0B0 ,0B1\n,1F0,1B0,1F1,1B1\n"


def test_a2_blanks_and_idle_slots(accepted):
    schedule, plain = accepted(A2), accepted("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    assert rows(schedule) == rows(plain)
    one, other = piper.simulate(schedule), piper.simulate(plain)
    assert one.start.tolist() == other.start.tolist() == [0, 1, 4, 7, 1, 2, 4, 5]
    assert one.makespan == 9


def test_a2_a_wrong_cell(refused):
    text = A2.replace(" 0B0 ", "0Q0")
    assert refused(text) == [("P104", 1, 14, 17, "0Q0")]
    (finding,) = refusal(text)
    assert finding.message == "`0Q0` in row 1, cell 4 is not an operation"


@pytest.mark.parametrize(
    ("text", "token", "row", "cell"), [("0F0x,0B0\n", "0F0x", 1, 1), ("0F0,0B0\n1FOO0,1B0\n", "1FOO0", 2, 1)]
)
def test_a3_typos(refused, text, token, row, cell):
    assert refused(text) == [("P104", row, 1, 1 + len(token), token)]
    (finding,) = refusal(text)
    assert finding.message == f"`{token}` in row {row}, cell {cell} is not an operation"


def test_a4_a_repeated_operation_and_microbatches_out_of_range(refused):
    assert refused("0F0,0F0,0B0\n") == [("P402", 1, 5, 8, "0F0")]
    (finding,) = refusal("0F0,0F0,0B0\n")
    assert finding.message == "0F0 occurs twice"
    assert places(finding.related and [piper.Diagnostic("", "", finding.related[0].span)]) == [("", 1, 1, 4, "0F0")]
    findings = refused("0F0,0F7,0B0,0B7\n")
    assert {code for code, *_ in findings} == {"P401"}
    messages = [finding.message for finding in refusal("0F0,0F7,0B0,0B7\n")]
    assert messages[0] == "stage 0 has no forward (F) for microbatches 1, 2, 3, 4, 5 and 6"


A7 = "0F0,7F0,7B0,0B0\n1F0,6F0,6B0,1B0\n2F0,5F0,5B0,2B0\n3F0,4F0,4B0,3B0\n"


def test_a7_the_placement_is_read_off_the_rows(accepted):
    schedule = accepted(A7)
    assert schedule.placement.rank_of[:, 0].tolist() == [0, 1, 2, 3, 3, 2, 1, 0]
    assert piper.simulate(schedule).makespan == 24
    assert "place vee\n" in to_pipe(schedule)


def test_a7_the_same_rows_on_a_loop():
    findings = piper.check(expanded(to_pipe(read(A7)).replace("place vee\n", "")))
    wrong = {f.message: f for f in findings if f.code == "P403"}
    assert "4F0: stage 4 is placed on rank 0 but scheduled on rank 3" in wrong
    assert {f.help for f in wrong.values()} == {"the rows fit `place vee`"}


def test_a8_any_placement(accepted):
    schedule = accepted("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n")
    assert schedule.placement.rank_of[:, 0].tolist() == [0, 1, 1, 0]
    assert _transfers(schedule) == [("B", 1, 0), ("B", 3, 2), ("F", 0, 1), ("F", 2, 3)]
    assert piper.simulate(schedule).makespan == 12


def test_a11_an_overlapped_cell(accepted):
    order = REFERENCE["dualpipev"]["ranks"]
    cell = "(4F4;3B0)OVERLAP_F_B"
    assert cell in order[3]
    schedule = accepted(text_of(order))
    assert write_csv(schedule) == text_of(order)
    timeline = piper.simulate(schedule)
    at = {str(schedule.operation(index)): index for index in range(len(schedule))}
    one, two = at["4F4"], at["3B0"]
    assert (schedule.rank[one], two, schedule.joined[two]) == (3, one + 1, True)
    assert timeline.start[one] == timeline.start[two]
    assert timeline.end[one] == timeline.end[two] == timeline.start[one] + 3
    assert timeline.start[one] >= max(timeline.end[at[need]] for need in ("3F4", "3F0", "4B0"))


def test_a11_the_needs_of_both_halves_come_first():
    """Either half alone would start earlier; the slot waits for the later of the two needs."""
    late_f = read("0F0,0F1,0B0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n")
    assert piper.check(late_f) == ()
    assert piper.simulate(late_f, piper.Costs(F=5, B=1)).start[5:7].tolist() == [10, 10]
    late_b = read("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1\n")
    assert piper.check(late_b) == ()
    timeline = piper.simulate(late_b, piper.Costs(F=1, B=5))
    assert timeline.start[1:3].tolist() == [7, 7]
    assert timeline.end[1:3].tolist() == [13, 13]


def test_a11_a_slot_that_needs_itself(refused):
    text = "7F1,(7F0;7B0)OVERLAP_F_B,7B1\n".replace("7", "0")
    assert refused(text) == [("P303", 1, 5, 25, "(0F0;0B0)OVERLAP_F_B")]
    (finding,) = refusal(text)
    assert finding.message == "0B0 overlaps with 0F0, which it needs"
    assert "7B0 overlaps with 7F0, which it needs" in [f.message for f in refusal("(7F0;7B0)OVERLAP_F_B\n")]


A12 = (
    "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
    "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD\n"
)


def test_a12_the_lowered_form(accepted, tmp_path):
    schedule = accepted(A12)
    assert text_of(rows(schedule)) == write_csv(schedule) == A12
    for transport in QUEUED:
        assert piper.check(schedule, transport) == ()
        assert piper.simulate(schedule, transport=transport).makespan == 6
    result = CliRunner().invoke(app, ["compile", str(tmp_path / "x.csv"), "--target", "torch-csv"])
    assert (result.exit_code, result.stdout) == (0, A12)


@pytest.mark.parametrize(
    ("gone", "place", "message"),
    [
        ("0SEND_F0,", (1, 10, 13, "0F0"), "the transfer from rank 0 to rank 1 has no 0SEND_F0"),
        ("1RECV_F0,", (2, 10, 13, "1F0"), "the transfer from rank 0 to rank 1 has no 1RECV_F0"),
        ("1SEND_B0,", (2, 23, 26, "1B0"), "the transfer from rank 1 to rank 0 has no 1SEND_B0"),
        ("0RECV_B0,", (1, 23, 26, "0B0"), "the transfer from rank 1 to rank 0 has no 0RECV_B0"),
    ],
)
def test_a12_every_send_has_its_recv(refused, gone, place, message):
    text = A12.replace(gone, "")
    assert refused(text) == [("P503", *place)]
    (finding,) = refusal(text)
    assert finding.message == message


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("0SEND_F0", "0SEND_F0,0SEND_F0", ("P402", 1, 23, 31, "0SEND_F0")),
        ("0F0,0SEND_F0", "0SEND_F0,0F0", ("P504", 1, 10, 18, "0SEND_F0")),
        ("1RECV_F0,1F0", "1F0,1RECV_F0", ("P504", 2, 10, 13, "1F0")),
        ("1SEND_B0,", "1SEND_B0,1SEND_F0,", ("P503", 2, 36, 44, "1SEND_F0")),
        ("0UNSHARD,0F0", "0F0,0UNSHARD", ("P407", 1, 1, 4, "0F0")),
        ("0UNSHARD,", "0UNSHARD,0UNSHARD,", ("P407", 1, 10, 18, "0UNSHARD")),
        ("0B0,0REDUCE_GRAD", "0REDUCE_GRAD,0B0", ("P302", 1, 32, 44, "0REDUCE_GRAD")),
    ],
)
def test_a12_what_pytorch_leaves_unchecked(refused, old, new, expected):
    assert refused(A12.replace(old, new)) == [expected]


def test_a12_its_row_alone():
    """Stage 1 is nowhere, so nothing it moves is needed."""
    findings = refusal(A12.splitlines()[0] + "\n")
    assert [(f.code, f.span.text) for f in findings] == [("P503", "0SEND_F0"), ("P503", "0RECV_B0")]


# --- lowered orders on queues ------------------------------------------------------------------


def _lowered(name: str) -> piper.Schedule:
    return read(text_of(LOWERED[name]["ranks"]))


def test_b3_deferred_receives():
    schedule = _lowered("interleaved_1f1b_p2m4_defer")
    for transport in ("buffered", "capacity=1", "direction"):
        assert piper.check(schedule, transport) == ()
    assert piper.simulate(schedule).makespan == piper.simulate(schedule, transport="direction").makespan == 27
    for transport in ("rank", "pair"):
        (finding,) = piper.check(schedule, transport)
        assert finding.code == "P501"
        assert finding.notes[1] == "stuck: rank 0 at 2SEND_F1, rank 1 at 3SEND_B0"
    default = _lowered("interleaved_1f1b_p2m4_asap")
    for transport in ("buffered", "capacity=1", "direction", "pair", "rank"):
        assert piper.check(default, transport) == ()


def test_b3_by_the_command_line(tmp_path):
    file = tmp_path / "deferred.csv"
    file.write_text(text_of(LOWERED["interleaved_1f1b_p2m4_defer"]["ranks"]))
    assert "ok  deferred: 2 ranks" in _command("check", file, code=0)
    result = CliRunner().invoke(app, ["check", str(file), "--transport", "rank"])
    assert result.exit_code == 1
    assert "stuck: rank 0 at 2SEND_F1, rank 1 at 3SEND_B0" in result.stderr


@pytest.mark.parametrize("name", LOWERED)
def test_verdicts_of_lowered_orders(name):
    """The verdict and makespan that were worked out for every transport apart from this code."""
    schedule, names = _lowered(name), {"single": "rank", "pair": "pair", "dir": "direction", "buffered": "buffered"}
    for key, verdict in LOWERED[name]["verdict"].items():
        findings = piper.check(schedule, names[key])
        assert (findings == ()) is verdict["completes"]
        if not findings:
            assert piper.simulate(schedule, transport=names[key]).makespan == verdict["makespan"]


@pytest.mark.parametrize(
    ("name", "free", "queued"), [("interleaved_1f1b_p2m4_asap", 27, 27), ("interleaved_1f1b_p4m8_asap", 57, 70)]
)
def test_b19_sends_behind_early_receives(name, free, queued, tmp_path):
    schedule = _lowered(name)
    assert piper.simulate(schedule).makespan == free
    timeline = piper.simulate(schedule, transport="rank")
    assert (timeline.makespan, timeline.transfer_wait) == (queued, queued - free)
    file = tmp_path / "x.csv"
    file.write_text(text_of(LOWERED[name]["ranks"]))
    document: dict[str, Any] = json.loads(_command("simulate", file, "--transport", "rank", "--format", "json", code=0))
    assert (document["makespan"], document["transfer_wait"]) == (queued, queued - free)


@pytest.mark.parametrize(("name", "peaks"), [("dualpipev", (9, 9, 9, 9)), ("zb_v", (8, 8, 8, 8))])
def test_d2_activations(name, peaks, tmp_path):
    schedule = read(text_of(REFERENCE[name]["ranks"]))
    assert piper.simulate(schedule).peak_activations == peaks
    assert piper.check(schedule, memory_limit=peaks[0]) == ()
    assert {finding.code for finding in piper.check(schedule, memory_limit=peaks[0] - 1)} == {"P601"}
