"""Checkpoints: a folder a step, one file a rank, complete or not there at all.

Ranks write their files into a folder that is not yet a checkpoint; a list of the files with their digests
and of what the checkpoint is for makes it one, by a rename. What is read back is weights only (tensors and
plain values), and nothing that does not match its digest.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pickle
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..diagnostics import Diagnostic, PipeError
from ..lower.program import Program
from .replica import Replica, State

__all__ = ["CheckpointFolder", "Found", "describe", "read_rank", "read_replicas", "write_rank"]

_log = logging.getLogger("piper_dsl")

KEPT = 2
"""Checkpoints that stay: the newest, and the one before, should the newest be damaged."""

_LIST = "checkpoint.json"


def describe(program: Program, stages: Sequence[nn.Module]) -> dict[str, Any]:
    """What a checkpoint is for, in values that JSON can say: it fits no other schedule and no other model."""
    model = {
        f"{stage}.{name}": f"{value.dtype} {tuple(value.shape)}"
        for stage, module in enumerate(stages)
        for name, value in module.state_dict().items()
        if isinstance(value, torch.Tensor)
    }
    digest = hashlib.sha256(program.to_json().encode()).hexdigest()
    return {"schedule": program.name, "ranks": program.ranks, "program": digest, "model": model}


def write_rank(state: Mapping[int, Any], folder: str, rank: int) -> str:
    """Writes the state of a rank; returns the digest of the file.

    Raises PipeError (P716) where it cannot, and where what it wrote could not be read back: now, not when it is needed.
    """
    path = _rank_file(Path(folder), rank)
    with _writing(path):
        torch.save(dict(state), path)
        with path.open("rb+") as file:
            os.fsync(file.fileno())
        read_rank(folder, rank)
        return _digest(path)


def _reason(error: Exception) -> str:
    """What torch says was in the way, without its colours; of a refused pickle, which value."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines() if line.strip()]
    return next((line for line in lines if "Unsupported" in line), lines[0] if lines else type(error).__name__)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise PipeError(Diagnostic("P716", f"{path} cannot be written: {why}")) from error


def read_rank(folder: str, rank: int) -> dict[int, Any]:
    """The state of a rank. Raises PipeError (P716) for a file that holds more than weights and plain values."""
    path = _rank_file(Path(folder), rank)
    try:
        state: dict[int, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, OSError, RuntimeError, EOFError) as error:
        help_ = "a checkpoint holds tensors and plain values; what optimizers and schedulers keep has to be such"
        raise PipeError(Diagnostic("P716", f"{path} cannot be read: {_reason(error)}", None, help_)) from error
    return state


def read_replicas(folder: str, replica: Replica) -> State:
    """The state of a rank, from a checkpoint of however many replicas.

    Raises what :func:`read_rank` raises, also where the checkpoint is no longer what was found to be whole.
    """
    try:
        written = len(_listed(Path(folder))["files"])
    except _Damaged as damage:
        raise PipeError(Diagnostic("P716", f"{folder}: {damage}")) from damage
    return replica.taken([read_rank(folder, rank) for rank in range(replica.place, written, replica.ranks)])


@dataclass(frozen=True)
class Found:
    """A checkpoint that is whole, after ``step`` steps; ``damaged`` says what is wrong with newer ones."""

    step: int
    path: Path
    damaged: tuple[str, ...] = ()


class _Damaged(Exception):
    """What of a checkpoint is not as it was written."""


class CheckpointFolder:
    """The checkpoints of one training in a folder: ``step-12`` is the state after 12 steps.

    The folder is made where there is none. Raises PipeError (P716) where nothing can be written there.
    """

    def __init__(self, folder: str | Path, identity: dict[str, Any]) -> None:
        self.path = Path(folder).absolute()
        self._identity = identity
        with _writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            # Whether that is allowed, only trying tells: there are more reasons than permissions.
            with tempfile.TemporaryFile(dir=self.path) as file:
                file.write(b"?")

    def begin(self, step: int) -> Path:
        """A fresh folder for the files of the ranks, not yet a checkpoint; what others left half is deleted."""
        part = self.path / f"step-{step}.part"
        with _writing(part):
            for left in self.path.glob("step-*.part"):
                self.abandon(left)
            part.mkdir(parents=True)
        return part

    def abandon(self, part: Path) -> None:
        """Deletes what did not become a checkpoint."""
        shutil.rmtree(part, ignore_errors=True)

    def commit(self, step: int, digests: Sequence[str]) -> Path:
        """Makes the files of the ranks a checkpoint; older ones but the last are deleted."""
        part, path = self.path / f"step-{step}.part", self.path / f"step-{step}"
        with _writing(part):
            with (part / _LIST).open("w", encoding="utf-8") as file:
                json.dump({"step": step, "files": list(digests), **self._identity}, file)
                file.flush()
                os.fsync(file.fileno())
            shutil.rmtree(path, ignore_errors=True)
            part.rename(path)
        older = [old for number, old in self._found() if number < step]
        for old in older[KEPT - 1 :]:
            shutil.rmtree(old, ignore_errors=True)
            if old.exists():
                _log.warning("an old checkpoint cannot be deleted: %s", old)
        return path

    def newest(self) -> Found | None:
        """The newest checkpoint that is whole; None if there is none.

        Raises PipeError (P716) where it is of another schedule or model, where every one is damaged, and where the
        folder cannot be read.
        """
        damaged: list[str] = []
        for step, path in self._found():
            try:
                self._check(path)
            except _Damaged as damage:
                damaged.append(f"{path}: {damage}")
            else:
                return Found(step, path, tuple(damaged))
        if damaged:
            message = f"no checkpoint in {self.path} is whole"
            raise PipeError(Diagnostic("P716", message, None, "train anew, in another folder", notes=tuple(damaged)))
        return None

    def _found(self) -> list[tuple[int, Path]]:
        """Steps and folders, the newest first."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise PipeError(Diagnostic("P716", f"{self.path} cannot be read: {error.strerror}")) from error
        steps = [name.removeprefix("step-") for name in names if re.fullmatch(r"step-[0-9]+", name)]
        return [(int(step), self.path / f"step-{step}") for step in sorted(steps, key=int, reverse=True)]

    def _check(self, path: Path) -> None:
        """Raises _Damaged, and PipeError (P716) for a checkpoint of something else."""
        document = _listed(path)
        differences = tuple(_differences(self._identity, document))
        if differences:
            message = f"{path} is a checkpoint of something else"
            raise PipeError(Diagnostic("P716", message, None, "use the schedule and model it is of", notes=differences))
        for rank, digest in enumerate(document["files"]):
            file = _rank_file(path, rank)
            try:
                found = _digest(file)
            except FileNotFoundError as error:
                raise _Damaged(f"{file.name} is missing") from error
            except OSError as error:
                raise _Damaged(f"{file.name} cannot be read: {error.strerror}") from error
            if found != digest:
                raise _Damaged(f"{file.name} is damaged")


def _listed(path: Path) -> dict[str, Any]:
    """What a checkpoint says of itself: the model that it is of, at least one of its ``files``. Raises _Damaged."""
    try:
        document = json.loads((path / _LIST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _Damaged(f"its list of files cannot be read: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise _Damaged("its list of files is none")
    if not isinstance(document.get("files"), list) or not document["files"]:
        raise _Damaged("it has no files")
    return document


def _rank_file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.pt"


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def _differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    """What a reader would say of two descriptions that are not the same."""
    for name in ("schedule", "ranks"):
        if ours[name] != theirs.get(name):
            yield f"{name}: {ours[name]} here, {theirs.get(name)} in the checkpoint"
    here, there = ours["model"], theirs["model"]
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            yield f"{name}: {here.get(name, 'nothing')} here, {there.get(name, 'nothing')} in the checkpoint"
    if ours["program"] != theirs.get("program") and ours["schedule"] == theirs.get("schedule"):
        yield "the order of the schedule: the same name, with other parameters or another file"
