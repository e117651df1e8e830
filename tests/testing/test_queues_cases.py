"""The interpreter of blocking queues on published cases (cases.md, part B) and on PyTorch's lowered orders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from queues_tokens import programs

from piper_dsl.testing import Compute, Group, Outcome, Recv, Send, Transfer, WrongMessage, interpret

ORDERS = json.loads((Path(__file__).parent / "data" / "lowered_orders.json").read_text())
RENDEZVOUS = ("direction", "pair", "rank", "blocking")
ONE_QUEUE = ("pair", "rank", "blocking")


def outcome(transport: str, *rows: str) -> Outcome:
    return interpret(programs([*rows]), transport)


CLEAN = Outcome((), (), ())

# B1: RECV right before its use, SEND right after its producer.
NAIVE = (
    "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
    "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1",
)


@pytest.mark.parametrize("transport", ONE_QUEUE)
def test_b1_stalls_with_two_sends_face_to_face(transport: str) -> None:
    found = outcome(transport, *NAIVE)
    assert not found.completed
    assert found.waiting == {(0, "SEND F1 0→1"), (1, "SEND B0 1→0")}
    assert found.wrong == found.unreceived == ()


def test_b1_names_the_head_of_every_queue() -> None:
    assert [str(stuck) for stuck in outcome("rank", *NAIVE).stuck] == [
        "rank 0, compute: 0B0 has not started",
        "rank 0, transfers: SEND F1 0→1 waits for its RECV",
        "rank 1, compute: 1F1 has not started",
        "rank 1, transfers: SEND B0 1→0 waits for its RECV",
    ]
    assert [(stuck.rank, stuck.queue) for stuck in outcome("blocking", *NAIVE).stuck] == [
        (0, "program"),
        (1, "program"),
    ]
    assert {stuck.queue for stuck in outcome("pair", *NAIVE).stuck} == {"compute", "with 0", "with 1"}


@pytest.mark.parametrize("transport", ["capacity=1", "capacity=2", "direction", "buffered"])
def test_b1_completes_where_a_send_need_not_wait_for_the_other_direction(transport: str) -> None:
    assert outcome(transport, *NAIVE) == CLEAN


@pytest.mark.parametrize("transport", ["capacity=1", "buffered", *RENDEZVOUS])
def test_b1_repaired(transport: str) -> None:
    grouped = (
        "0F0 0SEND_F0 0F1 {0SEND_F1 0RECV_B0} 0B0 0RECV_B1 0B1",
        "1RECV_F0 1F0 1B0 {1SEND_B0 1RECV_F1} 1F1 1B1 1SEND_B1",
    )
    moved = (NAIVE[0], "1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1SEND_B1")
    assert outcome(transport, *grouped) == CLEAN
    assert outcome(transport, *moved) == CLEAN


OVER, BACK = Transfer("F", 0, 1, 1), Transfer("B", 1, 0, 0)
SEND_OVER, RECV_BACK, SEND_BACK, RECV_OVER = Send(OVER, 1), Recv(BACK, 1), Send(BACK, 0), Recv(OVER, 0)


@pytest.mark.parametrize("transport", ONE_QUEUE)
def test_b5_exchange(transport: str) -> None:
    both_send = interpret([[SEND_OVER, RECV_BACK], [SEND_BACK, RECV_OVER]], transport)
    assert both_send.waiting == {(0, str(SEND_OVER)), (1, str(SEND_BACK))}
    both_receive = interpret([[RECV_BACK, SEND_OVER], [RECV_OVER, SEND_BACK]], transport)
    assert both_receive.waiting == {(0, str(RECV_BACK)), (1, str(RECV_OVER))}
    assert interpret([[SEND_OVER, RECV_BACK], [RECV_OVER, SEND_BACK]], transport) == CLEAN
    assert interpret([[Group((SEND_OVER, RECV_BACK))], [Group((SEND_BACK, RECV_OVER))]], transport) == CLEAN


def test_b5_needs_one_slot() -> None:
    assert interpret([[SEND_OVER, RECV_BACK], [SEND_BACK, RECV_OVER]], "capacity=1") == CLEAN
    # No buffer helps those that both receive first, in the order of the program.
    stuck = interpret([[RECV_BACK, SEND_OVER], [RECV_OVER, SEND_BACK]], "capacity=9")
    assert stuck.waiting == {(0, str(RECV_BACK)), (1, str(RECV_OVER))}
    assert interpret([[RECV_BACK, SEND_OVER], [RECV_OVER, SEND_BACK]], "buffered") == CLEAN


SWAPPED = ("0F0 0SEND_F0 0F1 0SEND_F1", "1RECV_F1 1F1 1RECV_F0 1F0")


@pytest.mark.parametrize("transport", ["direction", "pair", "rank", "blocking", "capacity=1", "capacity=2"])
def test_b6_swaps_what_is_matched_by_order(transport: str) -> None:
    found = outcome(transport, *SWAPPED)
    first, second = Transfer("F", 0, 1, 0), Transfer("F", 0, 1, 1)
    assert found == Outcome((), (WrongMessage(0, 1, second, first), WrongMessage(0, 1, first, second)), ())


def test_b6_is_fine_where_messages_have_keys() -> None:
    assert outcome("buffered", *SWAPPED) == CLEAN


@pytest.mark.parametrize("transport", ["direction", "pair", "rank", "capacity=1"])
def test_b9_two_outputs_written_in_one_order_and_read_in_the_other(transport: str) -> None:
    a, b = Transfer("F", 0, 2, 0), Transfer("F", 1, 2, 0)  # both stages on rank 0
    writer = [Compute("A"), Compute("B"), Send(a, 1, "A"), Send(b, 1, "B")]
    reader = [Recv(b, 0), Compute("reads B", (), (b,)), Recv(a, 0), Compute("reads A", (), (a,))]
    found = interpret([writer, reader], transport)
    assert found.completed
    assert {(w.expected, w.received) for w in found.wrong} == {(a, b), (b, a)}
    assert interpret([writer, reader], "buffered") == CLEAN


VERDICTS = {"single": "rank", "pair": "pair", "dir": "direction", "buffered": "buffered"}


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("verdict", VERDICTS)
def test_lowered_orders_of_pytorch(name: str, verdict: str) -> None:
    rows = [" ".join(row) for row in ORDERS[name]["ranks"]]
    found = outcome(VERDICTS[verdict], *rows)
    assert found.completed == ORDERS[name]["verdict"][verdict]["completes"]
    assert found.wrong == found.unreceived == ()
    if not found.completed:  # B3
        assert found.waiting == {(0, "SEND F1 2→3"), (1, "SEND B0 3→2")}


@pytest.mark.parametrize("name", ["interleaved_1f1b_p2m4_asap", "interleaved_1f1b_p2m4_defer"])
def test_b3_completes_with_one_slot(name: str) -> None:
    assert outcome("capacity=1", *[" ".join(row) for row in ORDERS[name]["ranks"]]) == CLEAN


@pytest.mark.parametrize("sends", [1, 2, 3, 4])
@pytest.mark.parametrize("slots", [1, 2, 3, 4])
def test_capacity_counts_unreceived_messages(sends: int, slots: int) -> None:
    """Both ranks send n times, then receive n times: n slots are needed, not one fewer."""
    over = [Transfer("F", 0, 1, i) for i in range(sends)]
    back = [Transfer("B", 1, 0, i) for i in range(sends)]
    rows = [
        [*(Send(t, 1) for t in over), *(Recv(t, 1) for t in back)],
        [*(Send(t, 0) for t in back), *(Recv(t, 0) for t in over)],
    ]
    found = interpret(rows, f"capacity={slots}")
    assert found.completed == (slots >= sends)
    if not found.completed:
        assert found.waiting == {(0, f"SEND F{slots} 0→1"), (1, f"SEND B{slots} 1→0")}
        assert found.unreceived == tuple(
            [(0, 1, t) for t in over[:slots]] + [(1, 0, t) for t in back[:slots]],
        )


def test_a_cycle_of_needs_hangs_everywhere() -> None:
    """A10: rank 1 runs its forwards in the wrong order; no transport helps."""
    rows = (
        "0F0 0SEND_F0 0RECV_B0 0B0 0F1 0SEND_F1 0RECV_B1 0B1",
        "1RECV_F1 1F1 1RECV_F0 1F0 1B0 1SEND_B0 1B1 1SEND_B1",
    )
    found = outcome("buffered", *rows)
    assert [(s.rank, str(s.action)) for s in found.stuck if isinstance(s.action, Compute)] == [(0, "0B0"), (1, "1F1")]
    assert not any(outcome(transport, *rows).completed for transport in ["rank", "pair", "blocking", "capacity=3"])


def test_compute_does_not_wait_for_a_send_but_under_blocking() -> None:
    rows = [[Compute("a"), Send(OVER, 1, "a"), Compute("b")], [Recv(OVER, 0)]]
    unheard = [rows[0], [Compute("c", ("never",)), Recv(OVER, 0)]]
    assert interpret(rows, "blocking") == CLEAN
    assert [str(s.action) for s in interpret(unheard, "rank").stuck] == ["c"]
    assert [str(s) for s in interpret(unheard, "blocking").stuck] == [
        "rank 0, program: SEND F1 0→1 waits for its RECV",
        "rank 1, program: c has not started",
    ]


def test_a_send_waits_for_its_producer() -> None:
    rows = [[Send(OVER, 1, "a"), Compute("a")], [Recv(OVER, 0)]]
    assert all(interpret(rows, transport) == CLEAN for transport in ["buffered", "direction", "pair", "rank"])
    assert [str(s) for s in interpret(rows, "blocking").stuck] == [
        "rank 0, program: SEND F1 0→1 has not started",
        "rank 1, program: RECV F1 0→1 waits for its SEND",
    ]


def test_the_queue_of_a_rank_joins_pairs() -> None:
    """A ring of three, each first sending to the right: one queue per rank hangs, one per pair does not."""
    to = [Transfer("F", rank, (rank + 1) % 3, 0) for rank in range(3)]
    rows = [[Send(to[r], (r + 1) % 3), Recv(to[r - 1], (r - 1) % 3)] for r in range(3)]
    assert not interpret(rows, "rank").completed
    assert interpret(rows, "pair") == CLEAN


def test_members_of_a_group_end_one_by_one_and_the_group_with_the_last() -> None:
    more = Transfer("F", 0, 1, 2)
    answer = [Recv(OVER, 0), Compute("b", (), (OVER,)), Send(BACK, 0, "b")]
    rows = [[Group((SEND_OVER, RECV_BACK)), Send(more, 1)], [*answer, Recv(more, 0)]]
    assert all(interpret(rows, transport) == CLEAN for transport in RENDEZVOUS)
    early = [[Group((SEND_OVER, RECV_BACK)), Send(more, 1)], [Recv(OVER, 0), Recv(more, 0), SEND_BACK]]
    assert interpret(early, "rank").waiting == {(0, "{SEND F1 0→1 RECV B0 1→0}"), (1, "RECV F2 0→1")}


def test_a_lone_transfer() -> None:
    assert interpret([[SEND_OVER], []], "buffered") == Outcome((), (), ((0, 1, OVER),))
    assert interpret([[SEND_OVER], []], "capacity=1") == Outcome((), (), ((0, 1, OVER),))
    assert all(interpret([[SEND_OVER], []], transport).waiting == {(0, str(SEND_OVER))} for transport in RENDEZVOUS)
    assert interpret([[], [RECV_OVER]], "buffered").waiting == {(1, str(RECV_OVER))}


@pytest.mark.parametrize("transport", ["", "nccl", "capacity", "capacity=0", "capacity=-1", "capacity=x", "rank=1"])
def test_unknown_transports(transport: str) -> None:
    with pytest.raises(ValueError, match="unknown transport"):
        interpret([[]], transport)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[Send(OVER, 0)]], "no other rank as peer: 0"),
        ([[Recv(OVER, 1)]], "no other rank as peer: 1"),
        ([[Group(())], []], "an empty group on rank 0"),
        ([[Compute("a"), Compute("a")]], "two computes of rank 0"),
    ],
)
def test_programs_that_are_none(rows: list[list[Compute]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        interpret(rows, "rank")
