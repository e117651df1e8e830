"""Where the compiler puts transfers: never a stall, the same computing, and times that can be named."""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise, permutations, product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queues_tokens import programs

from piper_dsl.check import check
from piper_dsl.diagnostics import Source
from piper_dsl.expand import expand
from piper_dsl.ir.costs import Costs
from piper_dsl.ir.schedule import Schedule
from piper_dsl.library import library_names, load
from piper_dsl.plan import PLACEMENTS, Plan, Transport, place_transfers
from piper_dsl.plan.plan import COMPUTE, SEND
from piper_dsl.simulate import simulate
from piper_dsl.syntax import parse
from piper_dsl.testing.queues import Compute, Recv, Send, Transfer, interpret

TRANSPORTS = ("buffered", "capacity=1", "capacity=2", "direction", "pair", "rank", "blocking", "ray-accelerator")
EVERYTHING = bool(os.environ.get("PIPER_EXHAUSTIVE"))
"""With the 8,000 orders of three ranks and split backwards, which take two minutes."""
LIMIT = pytest.mark.timeout(0 if EVERYTHING else 120)
SIZES = {
    "dualpipev": {"p": 2, "m": 4},
    "hanayo": {"p": 2, "m": 4},
    "chimera": {"p": 4, "m": 4},
    "dualpipe": {"p": 4, "m": 8},
}


def _programs(plan: Plan) -> list[list[Compute | Send | Recv]]:
    """What the ranks of a plan do, for the interpreter of queues."""
    schedule, slots, transfers = plan.schedule, plan.slots, plan.transfers
    keys = [
        Transfer("F" if transfers.forward[k] else "B", int(a), int(b), int(i))
        for k, (a, b, i) in enumerate(zip(transfers.source, transfers.target, transfers.microbatch, strict=True))
    ]
    arrivals: dict[int, list[Transfer]] = {}
    for key, consumer in zip(keys, schedule.slot[transfers.consumer].tolist(), strict=True):
        arrivals.setdefault(consumer, []).append(key)
    first = slots.first[:-1]

    def action(code: int) -> Compute | Send | Recv:
        index, what = divmod(code, 3)
        if what == COMPUTE:
            needs = tuple(
                f"s{source}"
                for source in slots.needs.of(index).tolist()
                if schedule.rank[first[source]] == schedule.rank[first[index]]
            )
            return Compute(f"s{index}", needs, tuple(arrivals.get(index, ())))
        if what == SEND:
            return Send(keys[index], int(transfers.receiver[index]), f"s{schedule.slot[transfers.producer[index]]}")
        return Recv(keys[index], int(transfers.sender[index]))

    return [[action(code) for code in row.tolist()] for row in plan.rows]


def _places(schedule: Schedule, transport: str, placement: str, costs: Costs) -> None:
    plan = place_transfers(schedule, placement, Transport.parse(transport), costs)
    assert sorted(plan.order.tolist()) == sorted(
        [slot * 3 for slot in range(len(plan.slots))] + [k * 3 + e for k in range(len(plan.transfers)) for e in (1, 2)]
    )
    computed = [[code // 3 for code in row.tolist() if code % 3 == COMPUTE] for row in plan.rows]
    assert computed == schedule.slots.rows()
    outcome = interpret(_programs(plan), transport.replace("ray-accelerator", "blocking"))
    assert outcome.completed, (transport, placement, outcome.stuck)
    assert not outcome.wrong


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("name", library_names())
def test_no_placement_stalls_on_any_transport(name: str, placement: str) -> None:
    schedule = load(name, **SIZES.get(name, {"p": 4, "m": 4}))
    for transport in TRANSPORTS:
        _places(schedule, transport, placement, Costs())


quarter = st.integers(0, 9).map(lambda n: n / 4)


@given(
    st.sampled_from(["gpipe", "1f1b", "zb_h1", "zb_v", "interleaved_1f1b"]),
    st.integers(1, 4),
    st.integers(1, 2),
    st.sampled_from(TRANSPORTS),
    st.sampled_from(PLACEMENTS),
    st.builds(Costs, F=quarter, B=quarter, I=quarter, W=quarter, latency=quarter, overhead=quarter),
)
@settings(max_examples=150, deadline=None)
def test_no_costs_make_a_placement_stall(
    name: str, p: int, rounds: int, transport: str, placement: str, costs: Costs
) -> None:
    _places(load(name, p=p, m=max(2 * p, rounds * p) if name == "zb_v" else rounds * p), transport, placement, costs)


def _orders(stage: int, microbatches: int, kinds: str) -> list[str]:
    """Every order in which a rank of one stage can run its operations, as rows."""
    tokens = [f"{stage}{kind}{i}" for i in range(microbatches) for kind in kinds]
    rows = []
    for order in permutations(tokens):
        places = {token: place for place, token in enumerate(order)}
        if all(
            places[f"{stage}{a}{i}"] < places[f"{stage}{b}{i}"] for i in range(microbatches) for a, b in pairwise(kinds)
        ):
            rows.append(" ".join(order))
    return rows


def _transfers(stage: int, stages: int, microbatches: int) -> str:
    """The transfers of a stage: on `buffered`, where they stand does not matter."""
    down = ("SEND_F", "RECV_B") if stage < stages - 1 else ()
    up = ("RECV_F", "SEND_B") if stage else ()
    return " ".join(f"{stage}{kind}{i}" for kind in down + up for i in range(microbatches))


@LIMIT
@pytest.mark.parametrize(
    ("ranks", "microbatches", "kinds"),
    [(2, 1, "FB"), (3, 1, "FIW"), (2, 2, "FB"), (3, 2, "FB"), (2, 2, "FIW"), *([(3, 2, "FIW")] if EVERYTHING else [])],
)
def test_every_order_of_few_operations_is_judged_rightly_and_placed_without_a_stall(
    ranks: int, microbatches: int, kinds: str
) -> None:
    """All of them: the checker's verdict is that of queues without transports, and what passes never stalls."""
    rows = [_orders(stage, microbatches, kinds) for stage in range(ranks)]
    verdicts: Counter[bool] = Counter()
    for chosen in product(*rows):
        bodies = "".join(f"rank {rank}: {row}\n" for rank, row in enumerate(chosen))
        schedule = expand(parse(Source("t.pipe", f"ranks {ranks}\nmicrobatches {microbatches}\n{bodies}")))
        runs = not check(schedule)
        verdicts[runs] += 1
        moved = [f"{row} {_transfers(stage, ranks, microbatches)}" for stage, row in enumerate(chosen)]
        assert runs == interpret(programs(moved), "buffered").completed, bodies
        if runs:
            for transport, placement in product(TRANSPORTS, PLACEMENTS):
                _places(schedule, transport, placement, Costs())
    assert verdicts.total() == prod(map(len, rows))
    assert verdicts[True] > 0


@pytest.mark.parametrize(
    ("name", "p", "m", "ideal"),
    [
        ("1f1b", 4, 8, 33),
        ("1f1b", 8, 16, 69),
        ("interleaved_1f1b", 4, 8, 57),
        ("interleaved_1f1b", 8, 16, 117),
        ("looped_bfs", 4, 8, 57),
        ("zb_h1", 4, 8, 27),
        ("zb_v", 4, 8, 51),
        ("dualpipev", 4, 8, 54),
    ],
)
def test_messages_that_hold_both_ranks_cost_nothing_in_our_order(name: str, p: int, m: int, ideal: float) -> None:
    schedule = load(name, p=p, m=m)
    assert simulate(schedule).makespan == ideal
    for transport in ("blocking", "ray-accelerator"):
        assert simulate(schedule, transport=transport, placement="event").makespan == ideal
    by_ray = simulate(schedule, transport="ray-accelerator")
    assert by_ray.transfer_wait == by_ray.makespan - ideal > 0


@pytest.mark.parametrize(("name", "makespan"), [("1f1b", 41), ("interleaved_1f1b", 123), ("1f1b_v", 97)])
def test_what_the_order_of_ray_costs(name: str, makespan: float) -> None:
    """The orders themselves are compared with Ray's in tests/runtime/test_ray_order.py."""
    assert simulate(load(name, p=4, m=8), transport="ray-accelerator").makespan == makespan


@pytest.mark.parametrize("name", ["1f1b", "interleaved_1f1b", "zb_v", "dualpipe"])
def test_a_transfer_with_a_latency_keeps_both_ranks(name: str) -> None:
    schedule = load(name, p=4, m=8)
    timeline = simulate(schedule, Costs(latency=0.5), "blocking", "event")
    moves = timeline.moves
    for rank in range(schedule.ranks):
        mine = (schedule.rank[moves.producer] == rank) | (schedule.rank[moves.consumer] == rank)
        own = slice(schedule.offsets[rank], schedule.offsets[rank + 1])
        busy = [
            *zip(timeline.start[own][~schedule.joined[own]], timeline.end[own][~schedule.joined[own]], strict=True),
            *zip(moves.start[mine], moves.end[mine], strict=True),
        ]
        taken = sorted(one for one in busy if one[1] > one[0])
        assert all(end <= start for (_, end), (start, _) in pairwise(taken))


def test_costs_that_round_cost_nothing_either() -> None:
    schedule, costs = load("interleaved_1f1b", p=4, m=8), Costs(F=0.02, B=0.04)
    ideal = simulate(schedule, costs).makespan
    assert simulate(schedule, costs, "blocking", "event").makespan == pytest.approx(ideal)
