"""Against the installed PyTorch: its parser, validator, schedule classes and lowering."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
from csv_orders import LOWERED, SAYABLE, expanded, facts, read, refusal, rows, text_of, without_opt
from hypothesis import given, settings
from hypothesis import strategies as st

import piper_dsl as piper
from piper_dsl import Costs
from piper_dsl.interop import write_csv
from piper_dsl.interop.pipe_text import to_pipe
from piper_dsl.lower import Code
from piper_dsl.testing import WrittenSchedule, schedules

torch = pytest.importorskip("torch")
from csv_torch import action, class_rows, loaded, runtime, validated  # noqa: E402
from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops  # noqa: E402
from torch.distributed.pipelining.schedules import _Action  # noqa: E402

TRANSPORTS = ("buffered", "direction", "pair", "rank")
LIBRARY = [name for name in piper.library_names() if name not in ("dualpipe", "chimera", "forward_only")]
SIZES = [(1, 2), (2, 4), (3, 6), (4, 8), (4, 9), (5, 10)]


def library() -> list[tuple[str, int, int]]:
    """Every schedule that trains and has no copies, at every size that its family allows."""
    found = []
    for name, (p, m) in itertools.product(LIBRARY, SIZES):
        try:
            piper.load(name, p=p, m=m)
        except piper.PipeError:
            continue
        found.append((name, p, m))
    return found


ALLOWED = library()


def test_the_library_is_compared_at_many_sizes():
    assert {name for name, *_ in ALLOWED} == set(LIBRARY)
    assert len(ALLOWED) >= 5 * len(LIBRARY)


# --- its parser and validator ------------------------------------------------------------------


@pytest.mark.parametrize("name", [*SAYABLE, *LOWERED])
def test_pytorch_reads_reference_orders_as_we_write_them(name, tmp_path):
    order = {**SAYABLE, **LOWERED}[name]["ranks"]
    schedule = read(text_of(order))
    form = "compute_comms" if name in LOWERED else "compute_only"
    expected = {rank: [action(cell) for cell in row] for rank, row in enumerate(order)}
    assert loaded(write_csv(schedule), tmp_path, schedule, form) == expected


@pytest.mark.parametrize(("name", "p", "m"), ALLOWED)
def test_pytorch_reads_and_accepts_the_library(name, p, m, tmp_path):
    schedule = piper.load(name, p=p, m=m)
    assert piper.check(schedule) == ()
    text = write_csv(schedule, lossy=True)
    expected = {rank: [action(cell) for cell in row] for rank, row in enumerate(without_opt(schedule))}
    assert loaded(text, tmp_path, schedule, "compute_only") == expected
    ranks = {stage: int(schedule.placement.rank_of[stage, 0]) for stage in range(schedule.stages)}
    assert validated(without_opt(schedule), schedule.stages, m) == ranks


@settings(deadline=None, max_examples=200)
@given(schedules(copies=False, graphs=False, ties=False, recompute=False, forward_only=False))
def test_pytorch_accepts_what_we_accept(tmp_path_factory, written: WrittenSchedule):
    schedule = written.schedule
    assert piper.check(schedule) == ()
    try:
        text = write_csv(schedule, lossy=True)
    except piper.PipeError as error:
        assert {finding.code for finding in error.diagnostics} == {"P901"}  # noqa: PT017 - other overlaps
        return
    expected = {rank: [action(cell) for cell in row] for rank, row in enumerate(without_opt(schedule))}
    folder = tmp_path_factory.getbasetemp()
    assert loaded(text, folder, schedule, "compute_only") == expected
    ranks = {stage: int(schedule.placement.rank_of[stage, 0]) for stage in range(schedule.stages)}
    assert validated(without_opt(schedule), schedule.stages, schedule.microbatches) == ranks


_KINDS = ["F", "B", "I", "W", "R", "OPT", "UNSHARD", "RESHARD", "REDUCE_GRAD", "SEND_F", "RECV_F", "SEND_B", "RECV_B"]
_NUMBER = st.integers(0, 12).map(str)
_TOKEN = st.tuples(_NUMBER, st.sampled_from(_KINDS), _NUMBER | st.just("")).map("".join)
_CELL = _TOKEN | st.tuples(_TOKEN, _TOKEN).map(lambda pair: f"({pair[0]};{pair[1]})OVERLAP_F_B")


@settings(deadline=None, max_examples=400)
@given(_CELL | st.tuples(_CELL, st.sampled_from(["x", " ", "0", "_", ")", "F", ";"])).map("".join))
def test_a_cell_that_we_read_is_one_that_pytorch_reads_as_the_same(cell):
    try:
        schedule = read(f"{cell}\n")
    except piper.PipeError:
        return
    (row,) = rows(schedule)
    assert repr(_Action.from_str(cell)) == row[0] == cell.strip()


# --- what it wrongly accepts -------------------------------------------------------------------


def test_a_prefix_is_no_token():
    assert repr(_Action.from_str("0F0x")) == "0F0"
    assert repr(_Action.from_str("1FOO0")) == "1F"
    assert [(f.code, f.span.text) for f in refusal("0F0x,0B0\n1FOO0,1B0\n")] == [("P104", "0F0x"), ("P104", "1FOO0")]


@pytest.mark.parametrize(
    ("text", "m", "expected"),
    [
        ("0F0,0F0,0B0\n", 1, [("P402", 1, 5)]),
        ("0F0,0F1,0B0,0B1,0B1\n", 2, [("P402", 1, 17)]),
        ("0F0,0F7,0B0,0B7\n", 2, [("P401", 1, 13)] * 2),
        ("0F0,0F1,0B0,0I0,0W0\n", 2, [("P401", 1, 5), ("P405", 1, 13)]),
    ],
)
def test_repeated_and_out_of_range(text, m, expected):
    order = [line.split(",") for line in text.splitlines()]
    assert validated(order, 1, m) == {0: 0}
    found = [(finding.code, finding.span.line, finding.span.column) for finding in refusal(text)]
    assert found == expected


def test_lowered_files_are_not_checked(tmp_path):
    """A SEND without RECV, twice, and too early; PyTorch takes the file, and would hang."""
    text = "0F0,0SEND_F0,0SEND_F0,0B0\n1F0,1SEND_B0,1B0\n"
    schedule = read(text)
    assert loaded(text, tmp_path, schedule, "compute_comms")
    assert [(finding.code, finding.span.text) for finding in refusal(text)] == [("P402", "0SEND_F0")]
    once = text.replace("0SEND_F0,0SEND_F0", "0SEND_F0")
    assert loaded(once, tmp_path, read(once), "compute_comms")
    found = [(finding.code, finding.span.text) for finding in refusal(once)]
    assert found == [("P503", "0B0"), ("P503", "1F0"), ("P504", "1SEND_B0")]


def test_the_reported_order_of_its_1f1b_is_wrong_and_refused():
    order = class_rows_as_reported()
    if order[-1][0] != "3F1":
        pytest.skip("this PyTorch reports 1F1B right")
    findings = refusal(text_of(order))
    assert {finding.code for finding in findings} >= {"P401"}
    messages = [finding.message for finding in findings]
    assert "stage 3 has no forward (F) for microbatch 0" in messages


def class_rows_as_reported() -> list[list[str]]:
    return [[str(cell) for cell in row if cell is not None] for row in get_schedule_ops("1F1B", 4, 8)]


# --- its classes -------------------------------------------------------------------------------

OURS = {
    "GPipe": "gpipe",
    "1F1B": "1f1b",
    "Interleaved1F1B": "interleaved_1f1b",
    "LoopedBFS": "looped_bfs",
    "InterleavedZeroBubble": "interleaved_zb",
    "ZBVZeroBubble": "zb_v",
    "DualPipeV": "dualpipev",
}
FIGURES = {
    "GPipe": (33, 9, [9, 6, 3, 0], (8, 8, 8, 8), 39),
    "1F1B": (33, 9, [9, 6, 3, 0], (4, 3, 2, 1), 49),
    "Interleaved1F1B": (57, 9, [9, 6, 3, 0], (11, 9, 7, 5), 71),
    "LoopedBFS": (57, 9, [9, 6, 3, 0], (16, 16, 16, 16), 63),
    "InterleavedZeroBubble": (51, 3, [3, 2, 1, 0], (8, 8, 8, 8), 72),
    "ZBVZeroBubble": (51, 3, [0, 0, 0, 0], (8, 8, 8, 8), 65),
    "DualPipeV": (54, 6, [6, 5, 4, 3], (9, 9, 9, 9), 75),
}
EQUAL = {"GPipe": 22, "1F1B": 22, "Interleaved1F1B": 38, "LoopedBFS": 38}


@cache
def imported(name: str, p: int, m: int, v: int | None = None, **options: bool) -> piper.Schedule:
    """The order of a class, idle slots included, through our CSV."""
    return read(text_of(class_rows(name, p, m, v, **options)))


@pytest.mark.parametrize("name", FIGURES)
def test_classes_at_four_ranks(name):
    schedule = imported(name, 4, 8)
    makespan, idle, span, peaks, comm1 = FIGURES[name]
    for transport in TRANSPORTS:
        assert piper.check(schedule, transport) == ()
    timeline = piper.simulate(schedule)
    assert timeline.makespan == makespan
    assert [rank.idle for rank in timeline.ranks] == [idle] * 4
    assert [rank.span_idle for rank in timeline.ranks] == span
    assert timeline.peak_activations == peaks
    assert piper.simulate(schedule, Costs(latency=1)).makespan == comm1
    if name in EQUAL:
        assert piper.simulate(schedule, Costs(F=1, B=1)).makespan == EQUAL[name]


@pytest.mark.parametrize(
    ("name", "p", "m", "v"),
    [
        *itertools.product(["GPipe"], [1, 2, 3, 5, 8], [1, 4, 9], [None]),
        *(("1F1B", p, m, None) for p in (1, 2, 3, 5, 8) for m in (p, p + 1, 2 * p, 3 * p + 1)),
        *itertools.product(["Interleaved1F1B", "InterleavedZeroBubble"], [2, 3, 4], [3, 6, 12], [2, 3]),
        *(("Interleaved1F1B", 4, m, 2) for m in (6, 7, 8, 10)),
        *itertools.product(["LoopedBFS"], [2, 3, 4], [1, 4, 6], [2, 3]),
        *itertools.product(["ZBVZeroBubble"], [2, 3, 4, 6], [2, 6, 12], [2]),
        *itertools.product(["DualPipeV"], [2, 3, 4], [8, 9, 12], [2]),
    ],
)
def test_classes_give_the_orders_of_our_library(name, p, m, v):
    """Operation by operation, on every rank; the gradient reductions of the plain classes left out."""
    theirs = imported(name, p, m, v)
    assert piper.check(theirs) == ()
    order = [[cell for cell in row if not cell.endswith("REDUCE_GRAD")] for row in rows(theirs)]
    assert order == without_opt(piper.load(OURS[name], {"p": p, "m": m} | ({"v": v} if v else {})))


@pytest.mark.parametrize(("m", "makespan"), [(6, 45), (7, 51), (8, 57), (10, 69)])
def test_interleaved_1f1b_in_rounds(m, makespan):
    assert piper.simulate(imported("Interleaved1F1B", 4, m)).makespan == makespan


def test_interleaved_1f1b_refuses_what_we_refuse():
    with pytest.raises(ValueError, match=r"number of rounds|multiple of"):
        class_rows("Interleaved1F1B", 4, 9)
    with pytest.raises(piper.PipeError, match="m must be a multiple"):
        piper.load("interleaved_1f1b", p=4, m=9, v=2)


# --- its lowering ------------------------------------------------------------------------------

QUEUED = [
    ("Interleaved1F1B", 2, 4, 27, 27),
    ("Interleaved1F1B", 4, 8, 57, 70),
    ("Interleaved1F1B", 8, 16, 117, 172),
    ("LoopedBFS", 4, 8, 57, 77),
    ("InterleavedZeroBubble", 4, 8, 51, 59),
    ("ZBVZeroBubble", 4, 8, 51, 55),
    ("DualPipeV", 4, 8, 54, 70),
]


@pytest.mark.parametrize(("name", "p", "m", "free", "queued"), QUEUED)
def test_what_the_queue_costs(name, p, m, free, queued):
    lowered = imported(name, p, m, with_comms=True)
    assert write_csv(lowered) == text_of(class_rows(name, p, m, with_comms=True))
    for transport in TRANSPORTS:
        assert piper.check(lowered, transport) == ()
        timeline = piper.simulate(lowered, transport=transport)
        expected = queued if transport == "rank" else free
        assert (timeline.makespan, timeline.transfer_wait) == (expected, expected - free)


@pytest.mark.parametrize(("name", "p", "m", "free", "queued"), QUEUED)
def test_eager_is_the_order_of_its_lowering(name, p, m, free, queued):
    """Operation by operation, transfers included; what handles parameters is not ours to add."""
    schedule = imported(name, p, m)
    program = piper.lower(schedule, "rank", "eager")
    own = [[str(i.operation) for i in program.row(rank) if i.code is not Code.FREE] for rank in range(p)]
    theirs = []
    for row in class_rows(name, p, m, with_comms=True):
        cells = [part for cell in row for part in cell.sub_actions or (cell,)]
        theirs.append([str(cell) for cell in cells if not str(cell).endswith(("UNSHARD", "RESHARD", "REDUCE_GRAD"))])
    assert own == theirs
    assert piper.simulate(schedule, transport="rank", placement="eager").makespan == queued
    assert piper.simulate(schedule, transport="pair", placement="eager").makespan == free


def test_an_overlapped_slot_sends_in_the_order_it_is_written():
    """The smallest difference there can be: one slot with something to send from both halves."""
    text = "0F0,0F1,0B0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n2F0,2B0,2F1,2B1\n"
    schedule = read(text)
    assert piper.check(schedule) == ()
    lowering = runtime(3, 3, 2)
    lowering._prepare_schedule_with_comms(
        {rank: [action(cell) for cell in row] for rank, row in enumerate(rows(schedule))}
    )
    theirs = [str(cell) for cell in lowering.pipeline_order_with_comms[1] if "SEND" in str(cell)]
    own = [str(i.operation) for i in piper.lower(schedule, "rank", "eager").row(1) if "SEND" in str(i)]
    assert own == theirs == ["1SEND_F0", "1SEND_F1", "1SEND_B0", "1SEND_B1"]


@settings(deadline=None, max_examples=60)
@given(schedules(copies=False, graphs=False, ties=False, recompute=False, forward_only=False, optimizer=False))
def test_what_it_lowers_checks(written: WrittenSchedule):
    """Any order that a CSV can say: its lowering, one global order, completes on every queue by our verdict too."""
    schedule = written.schedule
    try:
        write_csv(schedule)
    except piper.PipeError:
        return
    lowering = runtime(schedule.ranks, schedule.stages, schedule.microbatches)
    # It cannot lower a rank without operations.
    if not all(rows(schedule)):
        return
    lowering._prepare_schedule_with_comms(
        {rank: [action(cell) for cell in row] for rank, row in enumerate(rows(schedule))}
    )
    theirs = [lowering.pipeline_order_with_comms[rank] for rank in range(schedule.ranks)]
    lowered = read(text_of(theirs))
    assert lowered.placement.rank_of.tolist() == schedule.placement.rank_of.tolist()
    for transport in TRANSPORTS:
        assert piper.check(lowered, transport) == ()


@pytest.mark.parametrize(("deferred", "key"), [(False, "asap"), (True, "defer")])
def test_the_stored_lowered_orders_are_those_of_the_installed_pytorch(deferred, key):
    theirs = class_rows("Interleaved1F1B", 2, 4, with_comms=True, defer_pp_recv=deferred)
    assert text_of(theirs) == text_of(LOWERED[f"interleaved_1f1b_p2m4_{key}"]["ranks"])


@pytest.mark.parametrize("name", OURS)
def test_classes_become_readable_files(name):
    schedule = imported(name, 4, 8)
    assert facts(expanded(to_pipe(schedule))) == facts(schedule)
