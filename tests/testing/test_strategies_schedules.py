"""Drawn schedules are valid, of every shape, plain when shrunk; mutations are what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st
from schedule_rules import slots, violations

from piper_dsl.diagnostics import PipeError, Source
from piper_dsl.expand import expand
from piper_dsl.ir.operations import Kind, Operation
from piper_dsl.syntax import parse
from piper_dsl.testing import Mutation, WrittenSchedule, mutations, schedules

QUICK = settings(max_examples=100, deadline=None)
STEADY = settings(max_examples=300, deadline=None, derandomize=True, database=None)


@QUICK
@given(schedules())
def test_drawn_schedules_are_valid(written: WrittenSchedule) -> None:
    assert violations(written.schedule) == set()


@QUICK
@given(schedules())
def test_the_text_says_what_the_rows_say(written: WrittenSchedule) -> None:
    schedule = expand(parse(Source("again.pipe", written.text)))
    assert slots(schedule) == [[*row] for row in written.rows]
    assert (schedule.ranks, schedule.stages, schedule.microbatches) == (
        written.ranks,
        written.stages,
        written.microbatches,
    )


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])
@given(schedules(max_ranks=8, max_stages=16, max_microbatches=3))
def test_larger_ones_are_valid_too(written: WrittenSchedule) -> None:
    assert violations(written.schedule) == set()


def test_forty_stages_still_load() -> None:
    rows = (tuple((Operation(Kind.F, s, 0),) for s in range(40)), ())
    place = "".join(f"{1 - s % 2} if s == {s} else " for s in range(40)) + "0"
    written = WrittenSchedule(40, 1, (f"place s on {place}",), rows)
    assert len(written.schedule) == 40


def features(written: WrittenSchedule) -> Iterator[str]:
    schedule = written.schedule
    kinds = {operation.kind for row in written.rows for slot in row for operation in slot}
    rank_of = schedule.placement.rank_of
    yield from (kind.name for kind in kinds)
    yield "copies" if any(len({*row}) > 1 for row in rank_of.tolist()) else "one rank per stage"
    yield next((line for line in written.declarations if line in ("place vee",)), "other placement")
    if any("place s on" in line for line in written.declarations):
        yield "placement by stage"
    if not any("place" in line for line in written.declarations) and written.stages > 1 < written.ranks:
        yield "loop"
    if any(not row for row in written.rows):
        yield "an idle rank"
    if any(len(found) > 1 for found in schedule.graph.predecessors):
        yield "join"
    if any(len(found) > 1 for found in schedule.graph.successors):
        yield "fan-out"
    if any(a > b for a, b in schedule.graph.edges):
        yield "edge to a lower stage"
    if schedule.ties:
        yield "tie"
    for row in written.rows:
        for slot in row:
            if len(slot) > 1:
                yield "overlap " + "".join(sorted({operation.kind.name for operation in slot}))
    if Kind.B in kinds and Kind.I in kinds:
        yield "mixed backward"
    if not kinds & {Kind.B, Kind.I}:
        yield "forward only"


EXPECTED = {
    *("F", "B", "I", "W", "R", "OPT", "copies", "one rank per stage", "place vee", "placement by stage", "loop"),
    *("an idle rank", "join", "fan-out", "edge to a lower stage", "tie", "mixed backward", "forward only"),
    *("overlap BF", "overlap F", "overlap FI", "overlap FW"),
}


def test_every_shape_is_drawn() -> None:
    seen: set[str] = set()

    @STEADY
    @given(schedules())
    def collect(written: WrittenSchedule) -> None:
        seen.update(features(written))

    collect()
    assert seen >= EXPECTED, EXPECTED - seen


def test_what_is_switched_off_is_not_drawn() -> None:
    off = dict.fromkeys(
        ["copies", "graphs", "ties", "forward_only", "split", "recompute", "optimizer", "overlap"], False
    )
    seen: set[str] = set()

    @settings(STEADY, max_examples=60)
    @given(schedules(**off))
    def collect(written: WrittenSchedule) -> None:
        seen.update(features(written))
        assert written.schedule.graph.edges == tuple((s, s + 1) for s in range(written.stages - 1))

    collect()
    assert seen & (EXPECTED | {"overlap B"}) == {
        *("F", "B", "one rank per stage", "place vee", "placement by stage", "loop", "an idle rank"),
    }


PLAIN = "ranks 1\nmicrobatches 1\nstages 1\nrank 0: 0F0 0B0\n"


@pytest.mark.parametrize(
    ("wanted", "smallest"),
    [
        (lambda w: True, PLAIN),
        (lambda w: w.stages == 2 and w.ranks == 1, PLAIN.replace("es 1\nrank 0: 0F0", "es 2\nrank 0: 0F0 1F0 1B0")),
        (lambda w: "OPT" in w.text, PLAIN.replace("0B0", "0B0 0OPT")),
        (lambda w: "R0" in w.text, PLAIN.replace("0B0", "0R0 0B0")),
    ],
)
def test_failures_shrink(wanted: Callable[[WrittenSchedule], bool], smallest: str) -> None:
    assert shrunk(wanted).text == smallest


@pytest.mark.parametrize(
    ("wanted", "operations"),
    [(lambda w: "&" in w.text, 8), (lambda w: "i on" in w.text, 4), (lambda w: "edge" in w.text, 4)],
)
def test_failures_shrink_to_few_operations(wanted: Callable[[WrittenSchedule], bool], operations: int) -> None:
    assert len(shrunk(wanted).schedule) <= operations


def shrunk(wanted: Callable[[WrittenSchedule], bool]) -> WrittenSchedule:
    steady = settings(max_examples=1000, derandomize=True, database=None)
    return find(schedules(forward_only=False), wanted, settings=steady)


# --- mutations -------------------------------------------------------------------------------

SMALL = schedules(max_ranks=2, max_stages=3, max_microbatches=2)
MUTATIONS = SMALL.flatmap(mutations)


def operations(written: WrittenSchedule) -> Counter[tuple[int, Operation]]:
    return Counter((rank, op) for rank, row in enumerate(written.rows) for slot in row for op in slot)


@QUICK
@given(MUTATIONS)
def test_a_mutation_changes_what_it_says(mutation: Mutation) -> None:
    before, after = mutation.before, mutation.after
    assert before.rows != after.rows
    assert mutation.text == after.text
    assert (before.declarations, before.stages, before.microbatches, before.ranks) == (
        after.declarations,
        after.stages,
        after.microbatches,
        after.ranks,
    )
    gone, come = operations(before) - operations(after), operations(after) - operations(before)
    touched = (mutation.rank, mutation.operation)
    by_id = Counter(op for _, op in gone.elements()), Counter(op for _, op in come.elements())
    match mutation.change:
        case "remove":
            assert (gone, come) == (Counter([touched]), Counter())
        case "repeat":
            assert not gone
            assert by_id[1] == Counter([mutation.operation])
        case "move":
            assert by_id[0] == by_id[1] == Counter([mutation.operation] if gone else [])
            assert gone in (Counter(), Counter([touched]))
        case "swap":
            assert by_id[0] == by_id[1]
            assert by_id[0].total() in (0, 2)
        case "rename":
            assert gone == Counter([touched])
            ((rank, renamed),) = come.elements()
            assert (rank, renamed.kind) == (mutation.rank, mutation.operation.kind)
            assert renamed != mutation.operation
    assert mutation.description.startswith(f"{mutation.change} {mutation.operation} ")


@QUICK
@given(MUTATIONS)
def test_the_description_can_be_followed(mutation: Mutation) -> None:
    """Doing to the slots what the description says, word by word, gives the mutated file."""
    words = mutation.description.replace(",", "").split()
    numbers = [int(word) for word in words if word.isdecimal()]
    rows = [[[str(op) for op in slot] for slot in row] for row in mutation.before.rows]
    (rank, slot), there = numbers[:2], numbers[2:]
    assert rank == mutation.rank
    token, parts = words[1], rows[rank][slot]
    place = parts.index(token)
    match words[0]:
        case "remove":
            parts.remove(token)
        case "repeat":
            rows[there[0]].insert(there[1], [token])
        case "move":
            parts.remove(token)
            rows[rank] = [s for s in rows[rank] if s]
            rows[there[0]].insert(there[1], [token])
        case "swap":
            other = rows[there[0]][there[1]]
            other_place = other.index(words[words.index("with") + 1])
            parts[place], other[other_place] = other[other_place], parts[place]
        case "rename":
            parts[place] = words[-1]
    lines = [f"rank {r}: {' '.join(' & '.join(s) for s in row if s)}".rstrip() for r, row in enumerate(rows)]
    assert mutation.text.splitlines()[-len(lines) :] == lines


@QUICK
@given(MUTATIONS)
def test_a_mutated_text_loads_or_is_out_of_range(mutation: Mutation) -> None:
    try:
        schedule = mutation.after.schedule
    except PipeError:
        refused = True
    else:
        refused = False
        assert slots(schedule) == [[*row] for row in mutation.after.rows]
    assert not refused or mutation.change == "rename"  # only a new id can be out of range


def test_every_change_is_drawn_and_both_verdicts() -> None:
    seen: set[tuple[str, bool]] = set()
    across: set[str] = set()

    @settings(STEADY, max_examples=300)
    @given(MUTATIONS)
    def collect(mutation: Mutation) -> None:
        try:
            seen.add((mutation.change, violations(mutation.after.schedule) == set()))
        except PipeError:
            seen.add((mutation.change, False))
        if mutation.change == "move":
            numbers = [int(word) for word in mutation.description.replace(",", "").split() if word.isdecimal()]
            across.add("another rank" if numbers[0] != numbers[2] else "the same rank")

    collect()
    changes = ["remove", "repeat", "move", "swap", "rename"]
    # One fewer can be valid (an R, or the only OPT), a reordering too; a repeat or a new id need luck.
    assert seen >= {(change, False) for change in changes} | {("remove", True), ("move", True), ("swap", True)}
    assert across == {"another rank", "the same rank"}


def test_nothing_can_be_changed_in_nothing() -> None:
    with pytest.raises(ValueError, match="no operation"):
        find(mutations(WrittenSchedule(1, 1, (), ((),))), lambda m: True)


def test_the_same_seed_draws_the_same() -> None:
    def drawn() -> list[str]:
        texts: list[str] = []

        @settings(max_examples=30, deadline=None, derandomize=True, database=None)
        @given(st.data())
        def collect(data: st.DataObject) -> None:
            texts.append(data.draw(MUTATIONS).text)

        collect()
        return texts

    assert drawn() == drawn()
