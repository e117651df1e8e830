"""Programs: what lowering keeps, where transfers and FREE go, and JSON there and back."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from piper_dsl.diagnostics import PipeError
from piper_dsl.ir.schedule import Schedule
from piper_dsl.library import load
from piper_dsl.lower import Code, Instruction, Program, lower

SENDS = {Code.SEND_F: Code.RECV_F, Code.SEND_B: Code.RECV_B}
MOVES = {*SENDS, *SENDS.values()}


@st.composite
def _library(draw: st.DrawFn) -> Schedule:
    name = draw(st.sampled_from(["gpipe", "1f1b", "interleaved_1f1b", "zb_h1"]))
    p, m = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    if name == "interleaved_1f1b":
        return load(name, p=p, m=p * draw(st.integers(1, 2)), v=draw(st.integers(1, 3)))
    return load(name, p=p, m=m)


@pytest.fixture(
    params=[
        "ranks 2 microbatches 2 rank r { F[0:2] }",
        "ranks 2 microbatches 1 stages 4 place vee rank 0: 0F0 3F0 3B0 0B0 0OPT 3OPT rank 1: 1F0 2F0 2B0 1B0 1OPT 2OPT",
        "ranks 4 microbatches 2 edge 0 -> 2 edge 1 -> 2 edge 2 -> 3 rank r { for i in 0:2 { F[i] B[i] } OPT }",
        "ranks 3 microbatches 2 edge 0 -> 1 edge 0 -> 2 rank r { for i in 0:2 { F[i] I[i] W[i] } OPT }",
        "ranks 2 microbatches 2 rank 0: F0 F1 R0 B0 R1 B1 rank 1: F0 F1 & B0 B1",
        "ranks 2 microbatches 1 stages 1 rank 0: F0 B0 0OPT rank 1:",
        "ranks 1 microbatches 2 rank 0: 0UNSHARD F0 F1 0RESHARD 0UNSHARD B0 B1 0REDUCE_GRAD 0RESHARD 0OPT",
    ],
    ids=["forward-only", "vee", "two-towers", "fan-out", "recompute-overlap", "idle-rank", "sharded"],
)
def example(request: pytest.FixtureRequest, schedule) -> Schedule:
    """Shapes that the library does not have."""
    return schedule(request.param)


def _computes(row: tuple[Instruction, ...]) -> list[str]:
    return [str(i) for i in row if i.code not in MOVES and i.code is not Code.FREE]


def _assert_sound(schedule: Schedule, program: Program) -> None:
    rows = [program.row(rank) for rank in range(program.ranks)]
    assert len(rows) == schedule.ranks
    # What a rank computes, in its order.
    assert [_computes(row) for row in rows] == [list(map(str, schedule.row(rank))) for rank in range(schedule.ranks)]
    _assert_transfers(schedule, rows)
    _assert_global_order(schedule, program, rows)
    _assert_frees(schedule, rows)
    _assert_buffers(rows)


def _assert_buffers(rows: list[tuple[Instruction, ...]]) -> None:
    """No two messages share a buffer at a time, and there are no more buffers than messages at a time."""
    for row in rows:
        held: dict[tuple[Code, int, int | None], dict[int | None, int | None]] = defaultdict(dict)
        most: Counter[tuple[Code, int, int | None]] = Counter()
        used: Counter[tuple[Code, int, int | None]] = Counter()
        for one in row:
            ends = (one.code, one.stage, one.peer_stage)
            if one.code in SENDS.values():
                assert one.buffer not in held[ends]
                held[ends][one.buffer] = one.microbatch
                most[ends] = max(most[ends], len(held[ends]))
                used[ends] = max(used[ends], one.buffer + 1)
            else:
                assert one.buffer is None
            if one.code is Code.FREE:
                for ends in [ends for ends in held if ends[1] == one.stage]:
                    held[ends] = {buffer: i for buffer, i in held[ends].items() if i != one.microbatch}
        assert used == most


def _assert_transfers(schedule: Schedule, rows: list[tuple[Instruction, ...]]) -> None:
    """One SEND and one RECV for every edge between ranks and microbatch, each pair in one order."""
    trains = any(i.code in (Code.B, Code.I) for row in rows for i in row)
    wanted = Counter()
    for source, target in schedule.graph.edges:
        for i in range(schedule.microbatches):
            here, there = schedule.placement(source, i), schedule.placement(target, i)
            if here != there:
                wanted[Code.SEND_F, source, target, i, here, there] += 1
                wanted[Code.SEND_B, target, source, i, there, here] += trains
    sent, received = defaultdict(list), defaultdict(list)
    for rank, row in enumerate(rows):
        for one in row:
            if one.code in SENDS:
                sent[rank, one.peer].append((one.code, one.stage, one.peer_stage, one.microbatch))
            elif one.code in MOVES:
                code = Code.SEND_F if one.code is Code.RECV_F else Code.SEND_B
                received[one.peer, rank].append((code, one.peer_stage, one.stage, one.microbatch))
    assert sent == received
    assert Counter((*message, *pair) for pair, messages in sent.items() for message in messages) == +wanted


def _assert_global_order(schedule: Schedule, program: Program, rows: list[tuple[Instruction, ...]]) -> None:
    """The global order is every rank's own, merged; a RECV follows its SEND, a reader what it reads."""
    by_rank: dict[int, list[Instruction]] = {rank: [] for rank in range(program.ranks)}
    done: set[tuple[Code, int, int | None]] = set()
    arrived: set[tuple[int, Code, int, int | None, int | None]] = set()
    for rank, one in program.in_order():
        by_rank[rank].append(one)
        i = one.microbatch
        if one.code in SENDS:
            made = (
                [(Code.F, one.stage, i)] if one.code is Code.SEND_F else [(k, one.stage, i) for k in (Code.B, Code.I)]
            )
            assert done & set(made), one
            arrived.add((one.peer, SENDS[one.code], one.peer_stage, i, one.stage))
        elif one.code in MOVES:
            assert (rank, one.code, one.stage, i, one.peer_stage) in arrived, one
            done.add((one.code, one.stage, i, one.peer_stage))  # type: ignore[arg-type]
        elif one.code is Code.F:
            assert all(
                _has_read(schedule, done, Code.RECV_F, (Code.F,), q, one)
                for q in schedule.graph.predecessors[one.stage]
            )
        elif one.code in (Code.B, Code.I):
            assert (Code.F, one.stage, i) in done
            readers = schedule.graph.successors[one.stage]
            assert all(_has_read(schedule, done, Code.RECV_B, (Code.B, Code.I), q, one) for q in readers)
        elif one.code is Code.W:
            assert (Code.I, one.stage, i) in done
        done.add((one.code, one.stage, i))
    assert [tuple(by_rank[rank]) for rank in range(program.ranks)] == rows


def _has_read(schedule, done, receive: Code, local: tuple[Code, ...], neighbour: int, one: Instruction) -> bool:
    if schedule.placement(neighbour, one.microbatch) == schedule.placement(one.stage, one.microbatch):
        return any((code, neighbour, one.microbatch) in done for code in local)
    return (receive, one.stage, one.microbatch, neighbour) in done


def _assert_frees(schedule: Schedule, rows: list[tuple[Instruction, ...]]) -> None:
    """Every (stage, microbatch) is dropped once, on its rank, and nothing of it is used after."""
    for rank, row in enumerate(rows):
        freed = [(one.stage, one.microbatch) for one in row if one.code is Code.FREE]
        owned = [(s, i) for s in schedule.placement.owned[rank] for i in range(schedule.microbatches)]
        assert sorted(freed) == owned
        for place, one in enumerate(row):
            if one.code is Code.FREE:
                after = [
                    late for late in row[place + 1 :] if (late.stage, late.microbatch) == (one.stage, one.microbatch)
                ]
                assert after == []


@given(_library())
@settings(max_examples=25, deadline=None)
def test_lowering_the_library(schedule: Schedule) -> None:
    _assert_sound(schedule, lower(schedule))


def test_lowering_other_shapes(example: Schedule) -> None:
    _assert_sound(example, lower(example))


@given(_library())
@settings(max_examples=25, deadline=None)
def test_json_there_and_back(schedule: Schedule) -> None:
    program = lower(schedule)
    again = Program.from_json(program.to_json())
    assert again == program
    assert again.to_json() == program.to_json()
    assert (again.name, again.ranks, again.stages, again.microbatches) == (
        schedule.name,
        schedule.ranks,
        schedule.stages,
        schedule.microbatches,
    )
    assert [again.row(rank) for rank in range(again.ranks)] == [program.row(rank) for rank in range(program.ranks)]
    assert list(again.in_order()) == list(program.in_order())
    assert again.graph == program.graph
    assert again.placement.rank_of.tolist() == program.placement.rank_of.tolist()


def test_json_of_other_shapes(example: Schedule) -> None:
    program = lower(example)
    assert Program.from_json(program.to_json()) == program


def test_programs_that_differ_are_not_equal() -> None:
    program = lower(load("1f1b", p=2, m=2))
    others = [lower(load("1f1b", p=2, m=3)), lower(load("gpipe", p=2, m=2)), lower(load("1f1b", p=3, m=2))]
    assert all(program != other for other in others)
    assert program != program.to_json()


def _without(key: str):
    return lambda document: document.pop(key)


@pytest.mark.parametrize(
    "spoil",
    [
        *map(_without, ("format", "name", "microbatches", "stages", "edges", "rank_of", "ranks", "order")),
        lambda document: document.update(format=3),
        lambda document: document["ranks"][0][0].__setitem__(0, "FLY"),
        lambda document: document["ranks"][0][0].pop(),
        lambda document: document["ranks"][0][0].__setitem__(1, "zero"),
        lambda document: document["ranks"][0][0].__setitem__(1, 2**40),
        lambda document: document.update(ranks=3),
        lambda document: document.update(order=["a"]),
        lambda document: document["order"].pop(),
        lambda document: document.update(edges=[[0]]),
        lambda document: document["ranks"][1][0].__setitem__(5, 1),
    ],
)
def test_json_that_is_no_program_is_refused(spoil) -> None:
    document = json.loads(lower(load("1f1b", p=2, m=2)).to_json())
    spoil(document)
    with pytest.raises(ValueError, match=r"^not a program: "):
        Program.from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '"text"', "{}", "[" * 100_000])
def test_text_that_is_no_program_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not a program: "):
        Program.from_json(text)


def test_case_a8_crosses_four_times(schedule) -> None:
    text = """ranks 2 microbatches 1 stages 4 place s on min(s, 3 - s)
        rank 0: 0F0 3F0 3B0 0B0 rank 1: 1F0 2F0 2B0 1B0"""
    program = lower(schedule(text))
    sends = {(i.code.name, i.stage, i.peer_stage, rank, i.peer) for rank, i in program.in_order() if i.code in SENDS}
    assert sends == {
        ("SEND_F", 0, 1, 0, 1),
        ("SEND_F", 2, 3, 1, 0),
        ("SEND_B", 3, 2, 0, 1),
        ("SEND_B", 1, 0, 1, 0),
    }


@pytest.mark.parametrize(
    ("place", "pairs"),
    [("loop", {(0, 1), (1, 2), (2, 3), (0, 3)}), ("vee", {(0, 1), (1, 2), (2, 3)})],
)
def test_case_b13_rank_pairs_in_use(schedule, place: str, pairs: set[tuple[int, int]]) -> None:
    body = "for c in 0:2 { F[0]@stage(c) } B[0]@stage(1) B[0]@stage(0)"
    program = lower(schedule(f"ranks 4 microbatches 1 stages 8 place {place} rank r {{ {body} }}"))
    used = {tuple(sorted((rank, i.peer))) for rank, i in program.in_order() if i.code in MOVES}
    assert used == pairs


def test_what_is_freed_of_a_recomputed_forward_is_freed_last(schedule) -> None:
    """R without any backward is a strange wish, but what it uses must still be there."""
    row = lower(schedule("ranks 1 microbatches 1 rank 0: F0 R0")).row(0)
    assert [str(one) for one in row] == ["0F0", "0R0", "0FREE0"]


def test_instructions_read_well() -> None:
    rows = lower(load("1f1b", p=2, m=1))
    assert [str(one) for one in rows.row(0)] == ["0F0", "0SEND_F0→1", "0RECV_B0←1", "0B0", "0FREE0", "0OPT"]
    assert [str(one) for one in rows.row(1)] == ["1RECV_F0←0", "1F0", "1B0", "1SEND_B0→0", "1FREE0", "1OPT"]


def test_what_does_not_check_is_not_lowered(schedule) -> None:
    with pytest.raises(PipeError) as refused:
        lower(schedule("ranks 1 microbatches 2\nrank 0: F0 B0"))
    assert [(d.code, str(d.span)) for d in refused.value.diagnostics] == [("P401", "t.pipe:2:12")] * 2


@pytest.mark.parametrize("placement", ["eager", "event", "auto"])
def test_the_last_rank_of_1f1b_receives_into_two_buffers(placement: str) -> None:
    program = lower(load("1f1b", p=4, m=8), placement=placement)
    rows = [[one for one in program.row(rank) if one.code is Code.RECV_F] for rank in range(4)]
    assert [len({one.buffer for one in row}) for row in rows] == [0, 4, 3, 2]
