"""The interpreter against the graph of semantics.md, section 2, on random programs.

The two are different definitions: one lets programs run, the other merges every SEND with its RECV and asks
for a cycle. That they agree is also evidence for what the interpreter's docstring says of its runs.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from piper_dsl.testing import Action, Compute, Recv, Send, Transfer, interpret

Node = tuple[str, int, int]


@st.composite
def random_programs(draw: st.DrawFn, *, in_order: bool) -> list[list[Action]]:
    """Up to 3 ranks, 6 messages and 3 computes a rank, in any order, with any producers and consumers."""
    ranks = draw(st.integers(2, 3))
    rows: list[list[Action]] = []
    messages = draw(st.lists(st.permutations(range(ranks)).map(lambda p: (p[0], p[1])), max_size=6))
    for rank in range(ranks):
        computes = draw(st.integers(0, 3))
        own = [Transfer("F", a, b, i) for i, (a, b) in enumerate(messages) if b == rank]
        row: list[Action] = []
        for i in range(computes):
            needs = draw(st.sets(st.integers(0, computes - 1), max_size=1)) if i else ()
            arrivals = draw(st.sets(st.sampled_from(own), max_size=2)) if own else ()
            row.append(Compute(f"c{i}", tuple(f"c{n}" for n in needs), tuple(sorted(arrivals))))
        for i, (a, b) in enumerate(messages):
            if a == rank:
                producer = f"c{draw(st.integers(0, computes - 1))}" if computes and draw(st.booleans()) else None
                row.append(Send(Transfer("F", a, b, i), b, producer))
            if b == rank:
                row.append(Recv(Transfer("F", a, b, i), a))
        row = draw(st.permutations(row))
        rows.append(_receives_in_order(row) if in_order else row)
    return [_sends_in_order(row) for row in rows] if in_order else rows


def _receives_in_order(row: list[Action]) -> list[Action]:
    return _sorted_within(row, Recv)


def _sends_in_order(row: list[Action]) -> list[Action]:
    return _sorted_within(row, Send)


def _sorted_within(row: list[Action], kind: type[Send] | type[Recv]) -> list[Action]:
    """The same places for transfers of a kind, taken in the order of their ids: no wrong messages."""
    transfers = iter(sorted((a for a in row if isinstance(a, kind)), key=lambda a: a.transfer.microbatch))
    return [next(transfers) if isinstance(action, kind) else action for action in row]


def acyclic(rows: list[list[Action]], transport: str) -> bool:
    """The exact test: one node a transfer (two under ``capacity``), and no cycle."""
    name, _, slots = transport.partition("=")
    node: dict[tuple[int, int], Node] = {}
    sends: dict[tuple[int, int], list[Node]] = {}
    receives: dict[tuple[int, int], list[Node]] = {}
    for rank, row in enumerate(rows):
        for index, action in enumerate(row):
            node[rank, index] = ("", rank, index)
            if isinstance(action, Send):
                sends.setdefault((rank, action.peer), []).append(node[rank, index])
            elif isinstance(action, Recv):
                receives.setdefault((action.peer, rank), []).append(node[rank, index])
    graph: TopologicalSorter[Node] = TopologicalSorter()
    if name == "buffered":
        by_key = {
            action.transfer: (r, i)
            for r, row in enumerate(rows)
            for i, action in enumerate(row)
            if isinstance(action, Send)
        }
        for rank, row in enumerate(rows):
            for index, action in enumerate(row):
                if isinstance(action, Recv):
                    node[rank, index] = node[by_key[action.transfer]]
    for pair, sent in sends.items():
        for number, (send, receive) in enumerate(zip(sent, receives[pair], strict=True)):
            if name == "capacity":
                graph.add(receive, send)
                if number >= int(slots):
                    graph.add(send, receives[pair][number - int(slots)])
            elif name != "buffered":
                node[receive[1:]] = send
    for rank, row in enumerate(rows):
        for queue in _queues(row, name):
            for before, after in pairwise(queue):
                graph.add(node[rank, after], node[rank, before])
        places = {action.name: i for i, action in enumerate(row) if isinstance(action, Compute)}
        received = {action.transfer: i for i, action in enumerate(row) if isinstance(action, Recv)}
        for index, action in enumerate(row):
            if isinstance(action, Compute):
                for needed in [*(places[n] for n in action.needs), *(received[t] for t in action.arrivals)]:
                    graph.add(node[rank, index], node[rank, needed])
            elif isinstance(action, Send) and action.producer:
                graph.add(node[rank, index], node[rank, places[action.producer]])
    try:
        graph.prepare()
    except CycleError:
        return False
    return True


def _queues(row: list[Action], name: str) -> list[list[int]]:
    """The places, in program order, of what stands in each queue of a rank."""
    if name in ("blocking", "capacity"):
        return [[*range(len(row))]]
    queues: dict[object, list[int]] = {}
    for index, action in enumerate(row):
        if isinstance(action, Compute):
            key: object = "compute"
        elif name == "buffered":
            key = index
        else:
            key = {"rank": "all", "pair": action.peer, "direction": (action.peer, type(action))}[name]
        queues.setdefault(key, []).append(index)
    return [*queues.values()]


TRANSPORTS = ["buffered", "capacity=1", "capacity=2", "direction", "pair", "rank", "blocking"]


@pytest.mark.parametrize("transport", TRANSPORTS)
@settings(max_examples=100, deadline=None)
@given(random_programs(in_order=False))
def test_it_completes_exactly_where_the_graph_is_acyclic(transport: str, rows: list[list[Action]]) -> None:
    assert interpret(rows, transport).completed == acyclic(rows, transport)


@pytest.mark.parametrize("transport", TRANSPORTS)
@settings(max_examples=40, deadline=None)
@given(random_programs(in_order=False))
def test_wrong_messages_are_where_the_two_orders_of_a_directed_pair_differ(
    transport: str, rows: list[list[Action]]
) -> None:
    found = interpret(rows, transport)
    expected = set()
    for a, row in enumerate(rows):
        for b, other in enumerate(rows):
            sent = [action.transfer for action in row if isinstance(action, Send) and action.peer == b]
            awaited = [action.transfer for action in other if isinstance(action, Recv) and action.peer == a]
            expected |= {(a, b, want, got) for want, got in zip(awaited, sent, strict=True) if want != got}
    reported = {(w.sender, w.receiver, w.expected, w.received) for w in found.wrong}
    assert reported <= expected
    if transport == "buffered":
        assert reported == set()
    elif found.completed:
        assert reported == expected


@settings(max_examples=100, deadline=None)
@given(random_programs(in_order=True))
def test_the_looser_transport_completes_what_the_stricter_one_does(rows: list[list[Action]]) -> None:
    completes = {transport: interpret(rows, transport).completed for transport in TRANSPORTS}
    chains = [
        ["blocking", "rank", "pair", "direction", "buffered"],
        ["blocking", "capacity=1", "capacity=2", "buffered"],
    ]
    for chain in chains:
        verdicts = [completes[transport] for transport in chain]
        assert verdicts == sorted(verdicts), completes
