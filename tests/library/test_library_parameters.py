"""The first four schedules of the library, for every size: clean, or refused with the reason."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest

from piper_dsl.check import check
from piper_dsl.diagnostics import PipeError
from piper_dsl.ir.schedule import Schedule
from piper_dsl.library import library_names, load, read_source
from piper_dsl.simulate import Timeline, simulate
from piper_dsl.syntax import parse
from piper_dsl.syntax import tree as t

FIRST = ("1f1b", "gpipe", "interleaved_1f1b", "zb_h1")
ONE_STAGE = ("1f1b", "gpipe", "zb_h1")
RANKS, MICROBATCHES = range(1, 9), range(1, 17)


@cache
def _loaded(name: str, **parameters: int) -> Schedule:
    return load(name, parameters)


@cache
def _simulated(name: str, **parameters: int) -> Timeline:
    return simulate(_loaded(name, **parameters))


def test_the_library_has_them_in_order() -> None:
    names = library_names()
    assert set(FIRST) <= set(names)
    assert list(names) == sorted(names)


@pytest.mark.parametrize("name", ONE_STAGE)
def test_every_size_of_one_stage_a_rank_checks(name: str) -> None:
    for p, m in product(RANKS, MICROBATCHES):
        schedule = _loaded(name, p=p, m=m)
        assert (schedule.ranks, schedule.stages, schedule.microbatches) == (p, p, m)
        assert check(schedule) == (), (p, m)


def _fits(p: int, m: int) -> bool:
    """PyTorch's rule: m // p rounds, at least one, of equal size."""
    return p >= 1 and m >= 1 and m % max(1, m // p) == 0


@pytest.mark.parametrize("v", [1, 2, 3])
def test_every_number_of_equal_rounds_checks_interleaved(v: int) -> None:
    for p, m in product(RANKS, MICROBATCHES):
        if _fits(p, m):
            schedule = _loaded("interleaved_1f1b", p=p, m=m, v=v)
            assert (schedule.ranks, schedule.stages, schedule.microbatches) == (p, p * v, m)
            assert check(schedule) == (), (p, m)


@pytest.mark.parametrize("v", [1, 2, 3])
def test_every_other_number_is_refused_with_the_nearest(v: int) -> None:
    refusals = [(p, m) for p, m in product(RANKS, MICROBATCHES) if not _fits(p, m)]
    assert (4, 9) in refusals
    for p, m in refusals:
        with pytest.raises(PipeError) as refused:
            load("interleaved_1f1b", p=p, m=m, v=v)
        (finding,) = refused.value.diagnostics
        assert finding.code == "P216"
        assert finding.message.endswith(f"m must be a multiple of m // p (p = {p}, m = {m})")
        ranks = [next(n for n in side if _fits(n, m)) for side in (range(p - 1, 0, -1), range(p + 1, 99))]
        numbers = [next(n for n in side if _fits(p, n)) for side in (range(m - 1, 0, -1), range(m + 1, 99))]
        offers = f"p = {ranks[0]} or {ranks[1]}; or m = {numbers[0]} or {numbers[1]}"
        assert finding.help == f"nearest that satisfy every rule: {offers}"
        assert finding.span.text.startswith("require m % rounds == 0")


def test_case_c1_rounds_of_more_microbatches_than_ranks() -> None:
    makespans = {m: simulate(load("interleaved_1f1b", p=4, m=m, v=2)).makespan for m in (6, 7, 8, 10)}
    assert makespans == {6: 45, 7: 51, 8: 57, 10: 69}
    with pytest.raises(PipeError, match=r"\(p = 4, m = 9\)\n  help: .*m = 8 or 10"):
        load("interleaved_1f1b", p=4, m=9, v=2)


def test_case_c2_fewer_microbatches_than_ranks() -> None:
    with pytest.raises(PipeError) as refused:
        load("megatron_interleaved", p=6, m=3, v=2)
    (finding,) = refused.value.diagnostics
    assert finding.code == "P216"
    assert finding.message.endswith("at least as many microbatches as ranks (m >= p) (p = 6, m = 3)")
    assert finding.help == "nearest that satisfy every rule: p = 3; or m = 6"


@pytest.mark.parametrize("name", FIRST)
@pytest.mark.parametrize("wrong", [{"p": 0}, {"p": -1}, {"m": 0}, {"m": -4}])
def test_sizes_that_are_none_are_refused(name: str, wrong: dict[str, int]) -> None:
    with pytest.raises(PipeError) as refused:
        load(name, {"p": 4, "m": 8, **wrong})
    ((parameter, value),) = wrong.items()
    which = {"p": "ranks", "m": "microbatches"}[parameter]
    found = [d for d in refused.value.diagnostics if d.message == f"`{which}` is {value}; it must be at least 1"]
    assert [d.code for d in found] == ["P211"]
    assert found[0].span.text == parameter
    # Nothing else is said but what the zero does to a rule.
    assert {d.code for d in refused.value.diagnostics} <= {"P211", "P203", "P216"}


@pytest.mark.parametrize("v", [0, -1])
def test_no_chunks_are_refused(v: int) -> None:
    with pytest.raises(PipeError) as refused:
        load("interleaved_1f1b", p=4, m=8, v=v)
    (finding,) = refused.value.diagnostics
    assert (finding.code, finding.message) == ("P211", f"`stages` is {4 * v}; it must be at least 1")
    assert finding.span.text == "p * v"


@pytest.mark.parametrize("name", ONE_STAGE)
def test_case_b12_chunks_where_there_is_one_stage_a_rank(name: str) -> None:
    with pytest.raises(PipeError) as refused:
        load(name, {"p": 4, "m": 8, "v": 2})
    (finding,) = refused.value.diagnostics
    assert finding.code == "P216"
    assert "has one stage per rank; for more there is" in finding.message
    assert finding.message.endswith("(v = 2)")
    assert finding.help == "nearest that satisfy every rule: v = 1"


@pytest.mark.parametrize("name", ONE_STAGE)
def test_a_parameter_that_the_family_does_not_have(name: str) -> None:
    with pytest.raises(PipeError) as refused:
        load(name, {"p": 4, "m": 8, "stages": 2})
    (finding,) = refused.value.diagnostics
    assert (finding.code, finding.message) == ("P212", "the schedule has no parameter `stages`")
    assert finding.help == "its parameters: p, m, v"


# --- what the comments at the top of each file promise ---------------------------------------


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("gpipe", lambda p, m, r: m),
        ("1f1b", lambda p, m, r: min(p - r, m)),
        ("zb_h1", lambda p, m, r: min(p, m)),
    ],
)
def test_documented_memory(name: str, peak) -> None:
    for p, m in product(RANKS, MICROBATCHES):
        timeline = _simulated(name, p=p, m=m)
        assert timeline.peak_activations == tuple(peak(p, m, r) for r in range(p)), (p, m)


def test_documented_memory_interleaved() -> None:
    for p, m, v in product(RANKS, MICROBATCHES, (1, 2, 3)):
        if not _fits(p, m):
            continue
        timeline = _simulated("interleaved_1f1b", p=p, m=m, v=v)
        g = m // max(1, m // p)
        expected = tuple(min((v - 1) * g + 2 * (p - 1 - r) + 1, v * m) for r in range(p))
        assert timeline.peak_activations == expected, (p, m, v)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_documented_bubble(name: str) -> None:
    for p, m in product(RANKS, MICROBATCHES):
        timeline = _simulated(name, p=p, m=m)
        assert {rank.idle for rank in timeline.ranks} == {3 * (p - 1)}, (p, m)
        assert timeline.bubble.idle == pytest.approx((p - 1) / (m + p - 1))


def test_documented_bubble_interleaved() -> None:
    for p, rounds, v in product(RANKS, (1, 2), (1, 2, 3)):
        timeline = _simulated("interleaved_1f1b", p=p, m=p * rounds, v=v)
        assert {rank.idle for rank in timeline.ranks} == {3 * (p - 1)}, (p, rounds, v)


def test_documented_bubble_zb_h1() -> None:
    """(p - 1)(F + I - W), for steps with as many microbatches as the warm-up and its weights need."""
    for p in RANKS:
        timeline = _simulated("zb_h1", p=p, m=2 * p)
        assert {rank.idle for rank in timeline.ranks} == {p - 1}, p


# --- loading ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIRST)
def test_parameters_are_described(name: str) -> None:
    parameters = [s for s in parse(read_source(name)).statements if isinstance(s, t.Param)]
    assert [p.name.text for p in parameters] == ["p", "m", "v"]
    assert all(p.description for p in parameters)


def test_parameters_come_as_a_mapping_or_by_name() -> None:
    one, two = load("1f1b", {"p": 2, "m": 3}), load("1f1b", p=2, m=3)
    assert dict(one.parameters) == dict(two.parameters) == {"p": 2, "m": 3, "v": 1}
    assert dict(load("1f1b", {"p": 2}, m=3).parameters) == {"p": 2, "m": 3, "v": 1}


def test_a_path_is_read_and_named_as_given(tmp_path) -> None:
    path = tmp_path / "mine.pipe"
    path.write_bytes("\ufeffranks 1 microbatches 1 # é\r\nrank 0: F0 B0".encode())
    schedule = load(str(path))
    assert (schedule.name, len(schedule)) == ("mine", 2)
    assert str(schedule.origin.span(0)) == f"{path}:2:9"


def test_a_file_in_the_folder_wins_over_the_library(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load("gpipe").ranks == 4
    (tmp_path / "gpipe").write_text("ranks 1 microbatches 1 rank 0: F0")
    assert load("gpipe").ranks == 1


@pytest.mark.parametrize(
    ("name", "message", "help_"),
    [
        ("1f1c", "there is no schedule `1f1c`", "did you mean `1f1b`?"),
        ("gpip", "there is no schedule `gpip`", "did you mean `gpipe`?"),
        ("zzz", "there is no schedule `zzz`", "`piper-dsl list` shows the library; a path ends in .pipe"),
        (
            "nowhere.pipe",
            "cannot read nowhere.pipe: No such file or directory",
            "`piper-dsl list` shows the library; a path ends in .pipe",
        ),
        (
            "no/where",
            "cannot read no/where: No such file or directory",
            "`piper-dsl list` shows the library; a path ends in .pipe",
        ),
    ],
)
def test_what_is_not_there(name: str, message: str, help_: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PipeError) as refused:
        load(name)
    (finding,) = refused.value.diagnostics
    assert (finding.code, finding.span, finding.message, finding.help) == ("P001", None, message, help_)


def test_bytes_that_are_no_text(tmp_path) -> None:
    path = tmp_path / "bin.pipe"
    path.write_bytes(b"ranks 1\xff\xfe")
    with pytest.raises(PipeError, match=r"bin\.pipe is not UTF-8 text: byte 7 is 0xff"):
        load(str(path))
