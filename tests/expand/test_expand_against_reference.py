"""The vectorised expander against a plain interpreter of the same tree."""

from __future__ import annotations

from itertools import pairwise

import pytest
from expand_reference import Interpreter, RefusedError, Row
from expand_strategy import files
from hypothesis import Phase, given, settings

from piper_dsl.diagnostics import PipeError, Source
from piper_dsl.expand import expand
from piper_dsl.ir.operations import PER_MICROBATCH, Kind
from piper_dsl.ir.schedule import Schedule
from piper_dsl.library import read_source
from piper_dsl.syntax import parse


def _rows(schedule: Schedule) -> list[Row]:
    names = [Kind(kind).name for kind in schedule.kind]
    whole = {kind.name for kind in Kind if kind not in PER_MICROBATCH}
    numbers = zip(names, schedule.stage.tolist(), schedule.microbatch.tolist(), schedule.joined.tolist(), strict=True)
    flat = [(kind, stage, None if kind in whole else i, joined) for kind, stage, i, joined in numbers]
    return [flat[start:end] for start, end in pairwise(schedule.offsets.tolist())]


@given(files())
@settings(max_examples=120, deadline=None, phases=(Phase.reuse, Phase.generate))
def test_random_files_mean_the_same(drawn: tuple[str, dict[str, int]]) -> None:
    text, parameters = drawn
    file = parse(Source("random.pipe", text))
    try:
        expected = Interpreter(file, parameters).rows()
    except RefusedError:
        with pytest.raises(PipeError):
            expand(file, parameters)
    else:
        assert _rows(expand(file, parameters)) == expected


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved_1f1b", "zb_h1"])
@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 4), (3, 9), (8, 16), (4, 8)])
def test_the_library_means_the_same(name: str, p: int, m: int) -> None:
    file = parse(read_source(name))
    assert _rows(expand(file, {"p": p, "m": m})) == Interpreter(file, {"p": p, "m": m}).rows()
