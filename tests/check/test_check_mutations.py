"""Schedules with one operation removed, repeated or moved, and shuffled ones: refused, or valid by definition."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations, product

import pytest
from check_definition import Sizes, is_valid, key
from hypothesis import example, given, settings
from hypothesis import strategies as st

from piper_dsl.check import check
from piper_dsl.diagnostics import Diagnostic, Source
from piper_dsl.expand import expand
from piper_dsl.library import load
from piper_dsl.syntax import parse

PARAMETERS = {
    "gpipe": [{"p": p, "m": m} for p in (1, 2, 3) for m in (1, 2, 3)],
    "1f1b": [{"p": p, "m": m} for p in (1, 2, 3, 4) for m in (1, 2, 5)],
    "interleaved_1f1b": [{"p": p, "m": m, "v": 2} for p, m in ((1, 2), (2, 2), (2, 4), (3, 3))],
    "zb_h1": [{"p": p, "m": m} for p in (1, 2, 3, 4) for m in (1, 2, 4)],
}
LIBRARY = st.sampled_from([(name, parameters) for name, every in PARAMETERS.items() for parameters in every])


@dataclass
class _Written:
    """A schedule as rows of tokens, and its text as a file of literals."""

    rows: list[list[str]]
    sizes: Sizes

    @property
    def text(self) -> str:
        ranks, stages = len(self.rows), len(self.sizes.home)
        head = f"ranks {ranks} microbatches {self.sizes.microbatches} stages {stages}"
        return "\n".join([head, *(f"rank {rank}: {' '.join(row)}" for rank, row in enumerate(self.rows))])

    def place(self, rank: int, index: int) -> tuple[int, int]:
        """The line and column of a token in the text."""
        row = f"rank {rank}: {' '.join(self.rows[rank][:index])}"
        return rank + 2, len(row) + 1 + (1 if index else 0)

    def findings(self) -> tuple[Diagnostic, ...]:
        return check(expand(parse(Source("t.pipe", self.text))))


def _written(chosen: tuple[str, dict[str, int]]) -> _Written:
    name, parameters = chosen
    schedule = load(name, parameters)
    rows = [[str(operation) for operation in schedule.row(rank)] for rank in range(schedule.ranks)]
    home = tuple(schedule.placement(stage) for stage in range(schedule.stages))
    return _Written(rows, Sizes(schedule.microbatches, home))


def _places(written: _Written) -> st.SearchStrategy[tuple[int, int]]:
    return st.sampled_from([(rank, index) for rank, row in enumerate(written.rows) for index in range(len(row))])


@given(LIBRARY)
@settings(max_examples=25, deadline=None)
def test_a_written_out_library_schedule_is_accepted(chosen: tuple[str, dict[str, int]]) -> None:
    written = _written(chosen)
    assert is_valid(written.rows, written.sizes)
    assert written.findings() == ()


@given(LIBRARY, st.data())
@settings(max_examples=80, deadline=None)
def test_removing_one_operation(chosen: tuple[str, dict[str, int]], data: st.DataObject) -> None:
    written = _written(chosen)
    rank, index = data.draw(_places(written))
    kind, stage, microbatch = key(written.rows[rank].pop(index))
    trains = any(key(token)[0] in "BIW" for row in written.rows for token in row)
    findings = written.findings()
    assert (findings == ()) == is_valid(written.rows, written.sizes)
    if findings and kind == "OPT":
        assert [d.code for d in findings] == ["P406"]
        assert findings[0].message == f"stage {stage} is never stepped on rank {rank}, while other stages are"
    elif findings and not trains:
        assert [d.message for d in findings] == ["an optimizer step in a schedule without a backward"]
    elif findings:
        about = [d for d in findings if d.message.startswith(f"stage {stage} has no ")]
        assert [d.code for d in about] == ["P401"]
        assert about[0].message.endswith(f"for microbatch {microbatch}")


@given(LIBRARY, st.data())
@settings(max_examples=80, deadline=None)
def test_repeating_one_operation(chosen: tuple[str, dict[str, int]], data: st.DataObject) -> None:
    written = _written(chosen)
    rank, index = data.draw(_places(written))
    token = written.rows[rank][index]
    to_rank = data.draw(st.integers(0, len(written.rows) - 1))
    to_index = data.draw(st.integers(0, len(written.rows[to_rank])))
    written.rows[to_rank].insert(to_index, token)
    assert not is_valid(written.rows, written.sizes)
    findings = written.findings()
    places = sorted(
        written.place(r, k) for r, row in enumerate(written.rows) for k, other in enumerate(row) if other == token
    )
    if to_rank == rank:
        (twice,) = [d for d in findings if d.code == "P402"]
        assert twice.message == f"{token} occurs twice"
        assert (twice.span.line, twice.span.column) == places[1]
        assert [(r.span.line, r.span.column) for r in twice.related] == [places[0]]
    else:
        misplaced = [d for d in findings if d.code == "P403"]
        assert [(d.span.line, d.span.column) for d in misplaced] == [written.place(to_rank, to_index)]


@given(LIBRARY, st.data())
@settings(max_examples=120, deadline=None)
def test_moving_one_operation(chosen: tuple[str, dict[str, int]], data: st.DataObject) -> None:
    written = _written(chosen)
    rank, index = data.draw(_places(written))
    token = written.rows[rank].pop(index)
    to_rank = data.draw(st.integers(0, len(written.rows) - 1)) if data.draw(st.booleans()) else rank
    written.rows[to_rank].insert(data.draw(st.integers(0, len(written.rows[to_rank]))), token)
    findings = written.findings()
    assert (findings == ()) == is_valid(written.rows, written.sizes)
    assert {d.code for d in findings} <= ({"P301", "P302"} if to_rank == rank else {"P301", "P302", "P403", "P406"})


@given(LIBRARY, st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_shuffling_every_rank(chosen: tuple[str, dict[str, int]], random) -> None:
    written = _written(chosen)
    for row in written.rows:
        random.shuffle(row)
    findings = written.findings()
    assert (findings == ()) == is_valid(written.rows, written.sizes)
    assert {d.code for d in findings} <= {"P301", "P302"}


@st.composite
def _arbitrary(draw: st.DrawFn) -> _Written:
    ranks, stages, microbatches = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    tokens = [f"{s}{kind}{i}" for s in range(stages) for i in range(microbatches) for kind in "FBIW"]
    tokens += [f"{s}OPT" for s in range(stages)] + [f"{stages}F0", f"0B{microbatches}"]
    rows = draw(st.lists(st.lists(st.sampled_from(tokens), max_size=10), min_size=ranks, max_size=ranks))
    return _Written(rows, Sizes(microbatches, tuple(s % ranks for s in range(stages))))


@given(_arbitrary())
@settings(max_examples=160, deadline=None)
@example(_Written([["0F0", "0B0"]], Sizes(1, (0,))))
@example(_Written([["0F0"]], Sizes(1, (0,))))
@example(_Written([[]], Sizes(1, (0,))))
def test_arbitrary_rows(written: _Written) -> None:
    assert (written.findings() == ()) == is_valid(written.rows, written.sizes)


@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_every_order_of_a_tiny_pipeline(p: int, m: int) -> None:
    """All orders of all ranks: 24 · 24 of them for two ranks and two microbatches."""
    sizes = Sizes(m, tuple(range(p)))
    rows = [[f"{rank}{kind}{i}" for i in range(m) for kind in "FB"] for rank in range(p)]
    valid = 0
    for order in product(*(permutations(row) for row in rows)):
        written = _Written([list(row) for row in order], sizes)
        accepted = written.findings() == ()
        assert accepted == is_valid(written.rows, sizes), written.text
        valid += accepted
    assert valid == {(1, 1): 1, (2, 1): 1, (1, 2): 6, (2, 2): 26}[p, m]
