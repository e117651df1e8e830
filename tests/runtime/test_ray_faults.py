"""What goes wrong while actors run: told at once and with its place, and no process stays behind."""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from ray.util.placement_group import placement_group_table
from runtime_models import HOT, WIDTH, Carry, Faulty, FaultyOnce, FaultyWeight, first_and_last, mixed, mixed_batch, sgd
from runtime_processes import alive, eventually
from runtime_reference import EXACT, assert_close, close, only, operations, rows, trained_whole, written
from torch import nn

import piper_dsl as piper
from piper_dsl.runtime.resources import Resources
from piper_dsl.targets import ray_session, watchdog

pytestmark = pytest.mark.usefixtures("ray_instance")

Ranks = Callable[[], set[int]]

FORMS = [("ray-dag", "shared-memory"), ("ray-dag", "gloo"), ("ray-program", "auto")]

LIMIT = 60.0
GONE = 10.0
"""Seconds after close() in which the last process may still be on its way out."""


def _batch(size: int, hot: slice | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = torch.rand(2, size, WIDTH)
    if hot is not None:
        x[hot] = 2 * HOT
    return x, y


def _assert_stopped(pipeline: piper.Pipeline, words: str) -> None:
    """The pipeline refuses to go on, at once, and says why it stopped."""
    started = time.monotonic()
    with pytest.raises(piper.PipeError) as error:
        pipeline.step(*_batch(8))
    assert time.monotonic() - started < 0.5
    assert only(error).code == "P712"
    assert words in only(error).message


class _LeftEarlyError(Exception):
    pass


def _raise_in_a_stage_then_leave_early(pipeline: piper.Pipeline, own_ranks: Ranks, pids: set[int]) -> None:
    with pipeline:
        pipeline.step(*_batch(8))
        before = pipeline.state_dict()
        pids |= own_ranks()
        started = time.monotonic()
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(*_batch(8, hot=slice(4, 6)))
        assert time.monotonic() - started < 5
        finding = only(error)
        assert finding.code == "P710"
        assert finding.message == "rank 1: stage 1, forward (F) of microbatch 2: ValueError: too hot to handle"
        assert any("runtime_models.py" in note for note in finding.notes)
        # Neither rank has stepped, and the next step works.
        assert_close(pipeline.state_dict(), before, 0.0)
        assert pipeline.step(*_batch(8)) > 0
        raise _LeftEarlyError


@pytest.mark.parametrize(("target", "transport"), FORMS)
def test_a_stage_that_raises_is_named_and_the_pipeline_goes_on(target: str, transport: str, own_ranks: Ranks) -> None:
    # Case G7; and leaving leaves no process behind, also where the body raises.
    stages = [Carry(), Faulty("raise")]
    arguments = {"loss_fn": first_and_last, "optimizer": sgd, "timeout": LIMIT, "transport": transport}
    pipeline = piper.Pipeline(stages, piper.load("1f1b", p=2, m=4), target=target, **arguments)
    pids: set[int] = set()
    with pytest.raises(_LeftEarlyError):
        _raise_in_a_stage_then_leave_early(pipeline, own_ranks, pids)
    assert len(pids) == 2
    assert eventually(lambda: not alive(pids), GONE)
    assert own_ranks() == set()


def test_weight_passes_and_the_optimizer_of_a_leaf_rank_run_and_their_errors_arrive() -> None:
    # Case G2.
    text = "ranks 2\nmicrobatches 1\nrank 0: F0 I0 W0 OPT\nrank 1: F0 I0 W0 OPT"
    schedule = written(text)
    torch.manual_seed(0)
    stages = [Carry().double(), FaultyWeight().double()]
    batches = [tuple(x.double() for x in _batch(2)) for _ in range(2)]
    losses, state = trained_whole(stages, first_and_last, sgd, batches)
    arguments = {"loss_fn": first_and_last, "optimizer": sgd, "timeout": LIMIT, "target": "ray-dag"}
    with piper.Pipeline(stages, schedule, **arguments) as pipeline:
        assert [pipeline.step(*batch) for batch in batches] == close(losses, EXACT)
        assert_close(pipeline.state_dict(), state, EXACT)
        assert operations(pipeline) == rows(schedule)
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(*(x.double() for x in _batch(2, hot=slice(0, 2))))
        finding = only(error)
        assert finding.code == "P710"
        message = "rank 1: stage 1, weight gradient (W) of microbatch 0: ValueError: the weight gradient is too hot"
        assert finding.message == message
        assert pipeline.step(*batches[0]) > 0


def _kill_when_marked(mark: Path, killed: dict[str, float]) -> threading.Thread:
    def kill() -> None:
        if eventually(mark.exists, 90):
            time.sleep(0.5)
            killed["pid"] = int(mark.read_text())
            killed["at"] = time.monotonic()
            os.kill(killed["pid"], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


@pytest.mark.parametrize(("target", "transport"), FORMS)
def test_an_actor_killed_in_mid_step_is_named(target: str, transport: str, tmp_path: Path, own_ranks: Ranks) -> None:
    # Case G8: rank 1, in the middle where there are three.
    ranks = 2 if transport == "gloo" else 3
    mark = tmp_path / "asleep"
    stages = [Carry() for _ in range(ranks)]
    stages[1] = Faulty("sleep", mark)
    schedule = piper.load("1f1b", p=ranks, m=4)
    arguments = {"loss_fn": first_and_last, "optimizer": sgd, "timeout": LIMIT, "transport": transport}
    killed: dict[str, float] = {}
    with piper.Pipeline(stages, schedule, target=target, **arguments) as pipeline:
        pipeline.step(*_batch(8))
        pids = own_ranks()
        assert len(pids) == ranks
        thread = _kill_when_marked(mark, killed)
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(*_batch(8, hot=slice(2, 4)))
        seconds = time.monotonic() - killed["at"]
        thread.join()
        finding = only(error)
        assert finding.code == "P713"
        assert finding.message == f"rank 1 (process {killed['pid']}) died during the step"
        assert killed["pid"] in pids
        assert seconds < 5
        assert [note.partition(":")[0] for note in finding.notes] == [f"rank {r}" for r in range(ranks) if r != 1]
        _assert_stopped(pipeline, "rank 1")
        started = time.monotonic()
    assert time.monotonic() - started < 10
    assert eventually(lambda: not alive(pids), GONE)


@pytest.mark.parametrize("target", ["ray-dag", "ray-program"])
def test_a_pipeline_ends_soon_where_one_rank_died_and_another_is_stuck(
    target: str, tmp_path: Path, own_ranks: Ranks
) -> None:
    stages = [Carry(), Faulty("sleep", tmp_path / "asleep", seconds=60)]
    arguments = {"loss_fn": first_and_last, "optimizer": sgd, "timeout": LIMIT}

    def kill_the_other() -> None:
        assert eventually((tmp_path / "asleep").exists, 90)
        (victim,) = own_ranks() - {int((tmp_path / "asleep").read_text())}
        os.kill(victim, signal.SIGKILL)

    with piper.Pipeline(stages, piper.load("1f1b", p=2, m=4), target=target, **arguments) as pipeline:
        pipeline.step(*_batch(8))
        thread = threading.Thread(target=kill_the_other)
        thread.start()
        with pytest.raises(piper.PipeError, match=r"rank 0 \(process \d+\) died during the step"):
            pipeline.step(*_batch(8, hot=slice(2, 4)))
        thread.join()
        closing = time.monotonic()
    assert time.monotonic() - closing < 10
    assert eventually(lambda: own_ranks() == set(), GONE)


@pytest.mark.parametrize("target", ["ray-dag", "ray-program"])
def test_a_rank_that_was_killed_is_replaced_and_training_goes_on_as_if_nothing_was(
    target: str, tmp_path: Path, own_ranks: Ranks
) -> None:
    torch.manual_seed(0)
    mark = tmp_path / "asleep"
    stages, schedule = [Carry(), FaultyOnce("sleep", mark)], piper.load("1f1b", p=2, m=4)
    batches = [_batch(8), _batch(8), _batch(8), _batch(8, hot=slice(2, 4)), _batch(8)]
    arguments = {"loss_fn": first_and_last, "optimizer": sgd, "timeout": LIMIT}
    mark.touch()
    with piper.Pipeline(stages, schedule, **arguments) as undisturbed:
        losses = [undisturbed.step(*batch) for batch in batches]
        state = undisturbed.state_dict()
    mark.unlink()
    arguments |= {"checkpoints": tmp_path / "saved", "checkpoint_every": 2, "max_restarts": 1}
    killed: dict[str, float] = {}
    with piper.Pipeline(stages, schedule, target=target, **arguments) as pipeline:
        thread = _kill_when_marked(mark, killed)
        # The kill comes two steps behind a checkpoint: the third step is run once more.
        assert [pipeline.step(*batch) for batch in batches] == losses
        thread.join()
        assert_close(pipeline.state_dict(), state, 0.0)
        pids = own_ranks()
        assert len(pids) == 2
        assert killed["pid"] not in pids
        # No restart is left.
        os.kill(min(pids), signal.SIGKILL)
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(*batches[0])
        assert only(error).code == "P713"
    assert eventually(lambda: not alive(pids), GONE)


@pytest.mark.parametrize("target", ["ray-dag", "ray-program"])
def test_a_stuck_stage_is_ended_by_the_time_out_and_every_rank_is_told_of(
    target: str, tmp_path: Path, own_ranks: Ranks
) -> None:
    stages = [Carry(), Faulty("sleep", tmp_path / "asleep")]
    schedule = piper.load("1f1b", p=2, m=4)
    arguments = {"loss_fn": first_and_last, "optimizer": sgd, "timeout": 3.0, "target": target}
    with piper.Pipeline(stages, schedule, **arguments) as pipeline:
        pipeline.step(*_batch(8))
        pids = own_ranks()
        started = time.monotonic()
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(*_batch(8, hot=slice(4, 6)))
        assert 3 <= time.monotonic() - started < 6.5
        finding = only(error)
        assert finding.code == "P711"
        assert finding.message == "the step did not end within 3 s"
        assert "timeout" in finding.help
        # 1F2 sleeps; rank 0 has sent F0 to F2 and waits for the gradient of microbatch 1 or 2.
        assert [note[:8] for note in finding.notes] == ["rank 0: ", "rank 1: "]
        assert finding.notes[0].startswith("rank 0: waiting after 0")
        assert finding.notes[1].startswith("rank 1: 1F2, for ")
        _assert_stopped(pipeline, "did not end within 3 s")
    assert (tmp_path / "asleep").exists()
    assert eventually(lambda: not alive(pids), GONE)


class _Sleeper(nn.Linear):
    """A module that cannot be unpickled anywhere but here."""

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.home = os.getpid()

    def __setstate__(self, state: dict[str, object]) -> None:
        if os.getpid() != state["home"]:
            raise LookupError("cannot wake up here")
        super().__setstate__(state)


def test_a_rank_that_cannot_start_says_why_in_one_line(own_ranks: Ranks) -> None:
    schedule = written("ranks 1\nmicrobatches 1\nrank 0: F0 B0")
    arguments = {"loss_fn": nn.functional.mse_loss, "timeout": LIMIT, "target": "ray-dag"}
    with piper.Pipeline([_Sleeper()], schedule, **arguments) as pipeline:
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(*_batch(2))
        message = only(error).message
        assert "rank 0" in message
        assert "LookupError: cannot wake up here" in message
        assert "\n" not in message
        assert "\x1b" not in message
    assert eventually(lambda: not own_ranks(), GONE)


class _Dreamer(_Sleeper):
    """A module that takes for ever to be unpickled anywhere but here."""

    def __setstate__(self, state: dict[str, object]) -> None:
        if os.getpid() != state["home"]:
            time.sleep(300)
        super().__setstate__(state)


@pytest.mark.parametrize("target", ["ray-dag", "ray-program"])
def test_ranks_that_never_start_are_ended_and_told_of(
    target: str, own_ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "START", 4.0)
    schedule = piper.load("1f1b", p=2, m=4)
    arguments = {"loss_fn": nn.functional.mse_loss, "optimizer": sgd, "target": target}
    with piper.Pipeline([nn.Linear(WIDTH, WIDTH), _Dreamer()], schedule, **arguments) as pipeline:
        started = time.monotonic()
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(*_batch(8))
        assert time.monotonic() - started < 12
        finding = only(error)
        assert (finding.code, finding.message) == ("P711", "the start of the ranks did not end within 4 s")
        assert finding.notes[1] == "rank 1: does not answer"
        _assert_stopped(pipeline, "did not end within 4 s")
    assert eventually(lambda: not own_ranks(), GONE)


class _Mortal(_Sleeper):
    """A module that nowhere else outlives its making."""

    def __setstate__(self, state: dict[str, object]) -> None:
        if os.getpid() != state["home"]:
            os.kill(os.getpid(), signal.SIGKILL)
        super().__setstate__(state)


def test_a_death_in_the_start_is_told_while_another_rank_still_starts(own_ranks: Ranks) -> None:
    schedule = piper.load("1f1b", p=2, m=4)
    arguments = {"loss_fn": nn.functional.mse_loss, "optimizer": sgd, "target": "ray-program"}
    with piper.Pipeline([_Dreamer(), _Mortal()], schedule, **arguments) as pipeline:
        started = time.monotonic()
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(*_batch(8))
        assert time.monotonic() - started < 20
        assert (only(error).code, only(error).message) == ("P713", "rank 1 died while the ranks started")
    assert eventually(lambda: not own_ranks(), GONE)


class _Absorbed(nn.Linear):
    """Does not come back from handing out its state, anywhere but here."""

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.home = os.getpid()

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        if os.getpid() != self.home:
            time.sleep(300)
        return super().state_dict(*arguments, **options)


@pytest.mark.parametrize("target", ["ray-dag", "ray-program"])
def test_ranks_are_watched_between_steps_too(target: str, own_ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "ANSWER", 3.0)
    arguments = {"loss_fn": nn.functional.mse_loss, "optimizer": sgd, "target": target}
    with piper.Pipeline([nn.Linear(WIDTH, WIDTH), _Absorbed()], piper.load("1f1b", p=2, m=4), **arguments) as pipeline:
        pipeline.step(*_batch(8))
        pids = own_ranks()
        started = time.monotonic()
        with pytest.raises(piper.PipeError) as error:
            pipeline.state_dict()
        assert 3 <= time.monotonic() - started < 8
        finding = only(error)
        assert finding.code == "P711"
        assert finding.message == "what the ranks were asked between steps did not end within 3 s"
        assert finding.notes[0].startswith("rank 0: waiting for the next step, for ")
        stuck = {"ray-dag": "rank 1: does not answer", "ray-program": "rank 1: copying its state, for "}
        assert finding.notes[1].startswith(stuck[target])
        _assert_stopped(pipeline, "did not end within 3 s")
        closing = time.monotonic()
    assert time.monotonic() - closing < 5
    assert eventually(lambda: not alive(pids), GONE)


@pytest.mark.parametrize("target", ["ray-dag", "ray-program"])
def test_a_rank_that_is_killed_between_steps_stops_the_pipeline(target: str, own_ranks: Ranks) -> None:
    arguments = {"loss_fn": nn.functional.mse_loss, "optimizer": sgd, "target": target}
    stages = [nn.Linear(WIDTH, WIDTH) for _ in range(2)]
    with piper.Pipeline(stages, piper.load("1f1b", p=2, m=4), **arguments) as pipeline:
        pipeline.step(*_batch(8))
        victim = max(own_ranks())
        os.kill(victim, signal.SIGKILL)
        started = time.monotonic()
        with pytest.raises(piper.PipeError) as error:
            pipeline.state_dict()
        assert time.monotonic() - started < 5
        assert only(error).code == "P713"
        assert f"(process {victim}) died between steps" in only(error).message
        _assert_stopped(pipeline, "died between steps")


def _misspelt(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, learning_rate=0.1)


def _interrupted() -> None:
    threading.Timer(2.0, _thread.interrupt_main).start()


STARTS = {
    "raises": (nn.Linear, {"optimizer": _misspelt}, piper.PipeError, lambda: None),
    "takes too long": (_Dreamer, {}, piper.PipeError, lambda: None),
    "is interrupted": (_Dreamer, {}, KeyboardInterrupt, _interrupted),
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("target", ["ray-dag", "ray-program"])
def test_a_start_that_fails_leaves_nothing_also_before_the_pipeline_is_closed(
    target: str, start: str, own_ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "START", 4.0)
    module, changes, error, disturb = STARTS[start]
    arguments = {"loss_fn": nn.functional.mse_loss, "optimizer": sgd, "target": target, **changes}
    stages = [nn.Linear(WIDTH, WIDTH), module(WIDTH, WIDTH) if module is nn.Linear else module()]
    with piper.Pipeline(stages, piper.load("1f1b", p=2, m=4), **arguments) as pipeline:
        disturb()
        with pytest.raises(error):
            pipeline.step(*_batch(8))
        assert eventually(lambda: not own_ranks(), GONE)
        assert _held_places() == []
        assert eventually(lambda: ray.available_resources().get("CPU", 0) == 8, GONE)
        assert "memfd:piper-dsl" not in Path("/proc/self/maps").read_text()
        _assert_stopped(pipeline, "")


def _held_places() -> list[str]:
    """The states of placement groups that are there."""
    return [group["state"] for group in placement_group_table().values() if group["state"] != "REMOVED"]


def test_who_stops_waiting_for_places_gives_back_what_came() -> None:
    threading.Timer(1.0, _thread.interrupt_main).start()
    arguments = {"loss_fn": nn.functional.mse_loss, "optimizer": sgd, "strategy": "strict-spread"}
    with pytest.raises(KeyboardInterrupt):
        piper.Pipeline(
            [nn.Linear(1, 1) for _ in range(2)], piper.load("1f1b", p=2, m=4), target="ray-program", **arguments
        )
    assert _held_places() == []


def test_a_ray_that_was_started_for_a_pipeline_ends_where_its_making_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[bool] = []

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ray_session, "start_or_join", lambda cpus: None)
    monkeypatch.setattr(ray_session, "Places", interrupted)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: ended.append(True))
    with pytest.raises(KeyboardInterrupt):
        ray_session.RaySession(2, Resources(1, 0, "pack"))
    assert ended == [True]


@ray.remote
class _Seat:
    """Takes CPUs and does nothing."""

    def here(self) -> bool:
        return True


def test_too_few_cpus_are_told_and_those_of_a_closed_pipeline_are_free() -> None:
    seat = _Seat.options(num_cpus=6).remote()
    assert ray.get(seat.here.remote(), timeout=30)
    schedule = piper.load("1f1b", p=2, m=4)
    arguments = {"loss_fn": nn.functional.mse_loss, "optimizer": sgd, "timeout": LIMIT, "target": "ray-dag"}
    batch = mixed_batch(8, 0)
    try:
        with piper.Pipeline(mixed(2), schedule, **arguments) as first:
            first.step(*batch)
            started = time.monotonic()
            with pytest.raises(piper.PipeError) as error:
                piper.Pipeline(mixed(2), schedule, **arguments)
            # Somebody who leaves has five seconds to be gone.
            assert time.monotonic() - started < 10
            finding = only(error)
            assert finding.code == "P714"
            assert finding.message == "2 ranks need 2 CPUs, one each; Ray has 0 free of 8"
            assert first.step(*batch) > 0
        # Case G4: the next one needs no wait of the caller's.
        piper.Pipeline(mixed(2), schedule, **arguments).close()
    finally:
        ray.kill(seat)
        assert eventually(lambda: ray.available_resources().get("CPU", 0) == 8, 20)


def test_more_ranks_than_the_machine_has_gpus_are_told_at_once() -> None:
    started = time.monotonic()
    with pytest.raises(piper.PipeError) as error:
        piper.Pipeline(
            mixed(2),
            piper.load("1f1b", p=2, m=4),
            loss_fn=first_and_last,
            optimizer=sgd,
            target="ray-dag",
            transport="accelerator",
        )
    assert time.monotonic() - started < 2
    assert only(error).code == "P714"
    assert only(error).message == "2 ranks need 2 GPUs, one each; Ray has 0 free of 0"
