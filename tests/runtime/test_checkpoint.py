"""Checkpoints: exactly where training was, or refused with what is wrong."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runtime_checkpoints import BATCHES, ENDINGS, TARGETS, breakable, saving_pipeline
from runtime_models import WIDTH
from runtime_reference import EXACT, assert_close, close, only
from torch import nn

import piper_dsl as piper

pytestmark = pytest.mark.usefixtures("warm")


@pytest.mark.parametrize("target", TARGETS)
def test_training_goes_on_exactly_where_it_was(target: str, tmp_path: Path) -> None:
    with saving_pipeline(None, target) as undisturbed:
        losses = [undisturbed.step(*batch) for batch in BATCHES]
        state = undisturbed.state_dict()
    with saving_pipeline(tmp_path, target, checkpoint_every=3) as first:
        assert first.resume() == 0
        # The third step is in the middle of two that accumulate.
        assert [first.step(*batch) for batch in BATCHES[:5]] == losses[:5]
    assert [path.name for path in tmp_path.iterdir()] == ["step-3"]
    with saving_pipeline(tmp_path, target, checkpoint_every=3) as second:
        assert second.resume() == 3
        assert [second.step(*batch) for batch in BATCHES[3:]] == losses[3:]
        assert_close(second.state_dict(), state, 0.0)
        second.save()
    # The two newest stay.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-6", "step-7"]


@pytest.mark.parametrize("target", TARGETS)
def test_replicas_save_their_weights_once_and_go_on_exactly(target: str, tmp_path: Path) -> None:
    # In the middle of two steps that accumulate, every replica has gradients, and always buffers, of its own.
    replicas = {"schedule": piper.load("interleaved_1f1b", p=2, m=2), "replicas": 2, "target": target}
    with saving_pipeline(tmp_path, checkpoint_every=3, **replicas) as undisturbed:
        losses = [undisturbed.step(*batch) for batch in BATCHES[:5]]
        evaluated = undisturbed.evaluate(*BATCHES[5])
    with saving_pipeline(tmp_path, **replicas) as pipeline:
        assert pipeline.resume() == 3
        assert [pipeline.step(*batch) for batch in BATCHES[3:5]] == losses[3:]
        # Evaluation uses the buffers.
        assert pipeline.evaluate(*BATCHES[5]) == evaluated
    first, second = (torch.load(tmp_path / "step-3" / f"rank-{rank}.pt") for rank in (0, 2))
    buffers = {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert set(first[0]["module"]) > buffers == set(second[0]["module"])
    assert not torch.equal(first[0]["gradients"][0], second[0]["gradients"][0])


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 3), (3, 2)])
def test_another_number_of_replicas_takes_a_checkpoint_up(before: int, after: int, tmp_path: Path) -> None:
    batches = [torch.randn(2, 12, WIDTH, dtype=torch.float64).unbind() for _ in range(6)]

    def smooth(replicas: int, folder: Path | None) -> piper.Pipeline:
        torch.manual_seed(0)
        stages = [nn.Linear(WIDTH, WIDTH).double() for _ in range(2)]
        schedule = piper.load("1f1b", p=2, m=2)
        return saving_pipeline(folder, stages=stages, schedule=schedule, replicas=replicas, checkpoint_every=3)

    with smooth(1, None) as undisturbed:
        losses = [undisturbed.step(*batch) for batch in batches]
        state = undisturbed.state_dict()
    with smooth(before, tmp_path) as first:
        assert [first.step(*batch) for batch in batches[:3]] == close(losses[:3], EXACT)
    with smooth(after, tmp_path) as second:
        assert second.resume() == 3
        assert [second.step(*batch) for batch in batches[3:]] == close(losses[3:], EXACT)
        assert_close(second.state_dict(), state, EXACT)


def _two_checkpoints(folder: Path) -> None:
    with saving_pipeline(folder, checkpoint_every=1) as pipeline:
        for batch in BATCHES[:2]:
            pipeline.step(*batch)


def _damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


HARMS = {
    "one bit": lambda folder: _damage(folder / "rank-1.pt"),
    "cut short": lambda folder: os.truncate(folder / "rank-1.pt", 100),
    "missing": lambda folder: (folder / "rank-1.pt").unlink(),
    "no file": lambda folder: (folder / "rank-1.pt").rename(folder / "old") and (folder / "rank-1.pt").mkdir(),
    "all missing": lambda folder: [path.unlink() for path in folder.iterdir()],
    "half a list": lambda folder: (folder / "checkpoint.json").write_text("{"),
    "another list": lambda folder: (folder / "checkpoint.json").write_text("[1]"),
    "nothing listed": lambda folder: _change(folder, files=[]),
    "no model": lambda folder: _change(folder, model=3),
}


def _change(folder: Path, **changes: Any) -> None:
    listed = folder / "checkpoint.json"
    listed.write_text(json.dumps({**json.loads(listed.read_text()), **changes}))


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    harm: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _two_checkpoints(tmp_path)
    HARMS[harm](tmp_path / "step-2")
    with saving_pipeline(tmp_path) as pipeline, caplog.at_level(logging.WARNING, "piper_dsl"):
        assert pipeline.resume() == 1
        assert "a checkpoint is not used" in caplog.text
        assert "step-2" in caplog.text
        assert pipeline.step(*BATCHES[1]) > 0


def test_where_all_are_damaged_it_is_an_error(tmp_path: Path) -> None:
    _two_checkpoints(tmp_path)
    for step in (1, 2):
        _damage(tmp_path / f"step-{step}" / "rank-0.pt")
    with saving_pipeline(tmp_path) as pipeline, pytest.raises(piper.PipeError) as error:
        pipeline.resume()
    assert (only(error).code, len(only(error).notes)) == ("P716", 2)
    assert "rank-0.pt is damaged" in only(error).notes[0]


@pytest.mark.parametrize(
    ("changes", "notes"),
    [
        ({"width": 5}, ["0.extra.bias: torch.float32 (5,) here, torch.float32 (3,) in the checkpoint"]),
        (
            {"schedule": piper.load("looped_bfs", p=2, m=4)},
            ["schedule: looped BFS here, interleaved 1F1B in the checkpoint"],
        ),
        (
            {"schedule": piper.load("interleaved_1f1b", p=2, m=8)},
            ["the order of the schedule: the same name, with other parameters or another file"],
        ),
    ],
)
def test_a_checkpoint_of_something_else_says_what_differs(
    changes: dict[str, Any], notes: list[str], tmp_path: Path
) -> None:
    _two_checkpoints(tmp_path)
    with saving_pipeline(tmp_path, **changes) as pipeline, pytest.raises(piper.PipeError) as error:
        pipeline.resume()
    assert only(error).code == "P716"
    assert "step-2 is a checkpoint of something else" in only(error).message
    assert list(only(error).notes)[: len(notes)] == notes


def _adamw(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters)


def _two_groups(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD([{"params": parameters[:1]}, {"params": parameters[1:]}], lr=0.1, momentum=0.9)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"optimizer": _adamw}, "stage 0: optimizer: AdamW here, SGD in the checkpoint"),
        ({"optimizer": _two_groups}, "stage 0: parameters by group: 1, 5 here, 6 in the checkpoint"),
        ({"scheduler": None}, "stage 0: scheduler: none here, ExponentialLR in the checkpoint"),
    ],
)
def test_another_optimizer_or_scheduler_is_told_before_anything_steps(
    target: str, changes: dict[str, Any], note: str, tmp_path: Path
) -> None:
    _two_checkpoints(tmp_path)

    def take_up(pipeline: piper.Pipeline) -> None:
        pipeline.resume()
        pipeline.step(*BATCHES[0])

    with saving_pipeline(tmp_path, target, **changes) as pipeline, pytest.raises(piper.PipeError) as error:
        take_up(pipeline)
    assert only(error).code == "P716"
    assert only(error).message == "the checkpoint of rank 0 was written with another optimizer or scheduler"
    assert only(error).notes[0] == note


class Harm:
    """What a pickle may do and weights may not."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return print, ("loaded",)


@pytest.mark.parametrize("target", TARGETS)
def test_a_file_that_is_more_than_weights_is_not_loaded(
    target: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _two_checkpoints(tmp_path)
    file, listed = tmp_path / "step-2" / "rank-1.pt", tmp_path / "step-2" / "checkpoint.json"
    torch.save({1: Harm()}, file)
    document = json.loads(listed.read_text())
    document["files"][1] = hashlib.sha256(file.read_bytes()).hexdigest()
    listed.write_text(json.dumps(document))

    def take_up(pipeline: piper.Pipeline) -> None:
        pipeline.resume()
        pipeline.step(*BATCHES[0])

    with saving_pipeline(tmp_path, target) as pipeline, pytest.raises(piper.PipeError) as error:
        take_up(pipeline)
    assert only(error).code == "P716"
    assert "rank-1.pt cannot be read" in only(error).message
    assert "loaded" not in capfd.readouterr().out


def test_a_checkpoint_that_cannot_be_written_is_an_error_and_the_step_counts(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    losses: list[float] = []
    with saving_pipeline(folder, checkpoint_every=2) as pipeline:
        folder.rmdir()
        folder.write_text("in the way")
        losses.append(pipeline.step(*BATCHES[0]))
        with pytest.raises(piper.PipeError, match="cannot be written") as error:
            pipeline.step(*BATCHES[1])
        assert only(error).code == "P716"
        assert only(error).message.startswith(str(folder))
        assert only(error).notes == ("step 2 itself is done, and counts",)
        assert pipeline.last is not None
        losses.append(pipeline.last.loss)
        with pytest.raises(piper.PipeError, match="cannot be written"):
            losses.extend(pipeline.train(BATCHES[2:], steps_per_call=8))
        losses.append(pipeline.step(*BATCHES[4]))
    with saving_pipeline(None) as undisturbed:
        assert [undisturbed.step(*batch) for batch in BATCHES[:5]] == losses


def test_a_folder_that_cannot_be_written_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr("piper_dsl.runtime.pipeline.start_target", lambda *_: started.append("a target"))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(piper.PipeError, match="cannot be written") as error:
        saving_pipeline(tmp_path / "file" / "folder")
    assert only(error).code == "P716"
    assert only(error).message.startswith(str(tmp_path / "file" / "folder"))
    assert started == []


def test_an_old_checkpoint_that_cannot_be_deleted_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with saving_pipeline(tmp_path, checkpoint_every=1) as pipeline, caplog.at_level(logging.WARNING, "piper_dsl"):
        pipeline.step(*BATCHES[0])
        # A link is not deleted as a folder is.
        (tmp_path / "step-1").rename(tmp_path / "moved")
        (tmp_path / "step-1").symlink_to(tmp_path / "moved")
        for batch in BATCHES[1:3]:
            pipeline.step(*batch)
    assert f"an old checkpoint cannot be deleted: {tmp_path / 'step-1'}" in caplog.text


def test_a_checkpoint_that_is_gone_when_the_ranks_start_is_told_of(tmp_path: Path) -> None:
    _two_checkpoints(tmp_path)
    with saving_pipeline(tmp_path, "ray-program") as pipeline:
        assert pipeline.resume() == 2
        shutil.rmtree(tmp_path / "step-2")
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(*BATCHES[2])
    assert only(error).code == "P716"
    assert "step-2: its list of files cannot be read" in only(error).message


@pytest.mark.parametrize(("ending", "why"), ENDINGS.values(), ids=ENDINGS)
@pytest.mark.parametrize("asked", [piper.Pipeline.save, piper.Pipeline.resume])
def test_ranks_that_are_gone_or_out_of_step_are_not_saved_and_take_nothing_up(
    asked: Callable[[piper.Pipeline], object],
    ending: Callable[[piper.Pipeline], None],
    why: str,
    tmp_path: Path,
) -> None:
    with breakable(tmp_path) as pipeline:
        ending(pipeline)
        with pytest.raises(piper.PipeError) as error:
            asked(pipeline)
    assert only(error).code == "P712"
    assert only(error).message.startswith(why)
    assert list(tmp_path.iterdir()) == []


def test_some_ranks_that_took_up_a_checkpoint_do_not_go_on_without_the_others(tmp_path: Path) -> None:
    _two_checkpoints(tmp_path)
    file = tmp_path / "step-2" / "rank-1.pt"
    torch.save({1: Harm()}, file)
    files = json.loads((tmp_path / "step-2" / "checkpoint.json").read_text())["files"]
    _change(tmp_path / "step-2", files=[files[0], hashlib.sha256(file.read_bytes()).hexdigest()])
    with saving_pipeline(tmp_path) as pipeline:
        with pytest.raises(piper.PipeError, match="cannot be read"):
            pipeline.resume()
        with pytest.raises(piper.PipeError, match=r"the pipeline stopped: .*cannot be read"):
            pipeline.step(*BATCHES[0])


def test_what_could_not_be_read_back_is_refused_when_it_is_written(tmp_path: Path) -> None:
    def by_numpy(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: np.cos(step / 10))

    with saving_pipeline(tmp_path, scheduler=by_numpy, accumulate=1) as pipeline:
        pipeline.step(*BATCHES[0])
        with pytest.raises(piper.PipeError, match="cannot be read") as error:
            pipeline.save()
    assert only(error).code == "P716"
    assert "\x1b" not in only(error).message
    assert not list(tmp_path.glob("step-1"))


def test_a_checkpoint_outlives_older_ones_of_another_training_that_went_further(tmp_path: Path) -> None:
    for step in (900, 1000):
        (tmp_path / f"step-{step}").mkdir()
    with saving_pipeline(tmp_path, checkpoint_every=1) as pipeline:
        for batch in BATCHES[:3]:
            pipeline.step(*batch)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-1000", "step-2", "step-3", "step-900"]


def test_what_makes_no_sense_is_refused() -> None:
    for arguments, words in (
        ({"max_restarts": 1}, "restarts go on from a checkpoint"),
        ({"checkpoint_every": 0}, "`checkpoint_every` is 0"),
    ):
        with pytest.raises(piper.PipeError) as error:
            saving_pipeline(None, **arguments)
        assert words in only(error).message
    with saving_pipeline(None) as pipeline, pytest.raises(piper.PipeError) as error:
        pipeline.save()
    assert only(error).message == "the pipeline has no folder for checkpoints"
