"""Batches that ranks draw by themselves, where they are used: their data does not go through the driver.

A loader is a function without arguments that returns the batches: what has a length and takes a step in brackets, or
any iterable. Ranks of the first and the last stages call it in their own process, and take from each batch what is
theirs. The driver draws one batch and tells the ranks what it was like; a loader that gives a rank another one, or
batches of other shapes, is found out before anything is computed of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any, NoReturn

import torch

from ..diagnostics import Diagnostic, PipeError
from .batch import parts, rank_part, require_fit, signature
from .failure import CodedError, where_raised
from .packed import bytes_of
from .randomness import OwnRandomness
from .spec import Batch, Drawn, RankSpec

__all__ = ["Lead", "LoaderError", "RankLoader"]

Tensors = tuple[torch.Tensor, ...]
Make = Callable[[], Any]

_END = object()


class LoaderError(CodedError):
    """What is wrong with the batches of a loader."""

    code = "P703"

    def __init__(self, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.help = help


class _Feed:
    """The batches of a loader in one process, by step."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._randomness = OwnRandomness()
        self._batches: Any = None
        self._rest: Iterator[Any] | None = None
        self._begun = False
        self._next = 0

    def length(self) -> int | None:
        """How many batches there are; None where that is not known. Raises what the loader raises."""
        with self._randomness.drawing():
            return _length(self._opened())

    def batch(self, step: int) -> Any:
        """That of a step, counted from 0. Raises LoaderError where there is none, and what the loader raises."""
        with self._randomness.drawing():
            batches = self._opened()
            if hasattr(batches, "__getitem__") and (length := _length(batches)) is not None:
                batch = batches[step] if step < length else _END
            else:
                batch = self._passed(step)
        if batch is _END:
            raise LoaderError(f"the batches of the loader end before step {step}")
        return batch

    def _opened(self) -> Any:
        if self._batches is None:
            self._batches = self._make()
        return self._batches

    def _passed(self, step: int) -> Any:
        """Of an iterable: what comes before is passed over, from the beginning where that is behind already."""
        rest, self._rest = self._rest, None
        if rest is None or step < self._next:
            # An iterator that was begun, and has raised perhaps, would go on where it is.
            rest = iter(self._make() if self._begun else self._opened())
            self._begun, self._next = True, 0
        batch = next(islice(rest, step - self._next, None), _END)
        self._rest, self._next = rest, step + 1
        return batch


def _length(batches: Any) -> int | None:
    try:
        return len(batches)
    except TypeError:
        return None


class Lead:
    """The driver's part: which steps have batches, the first of them, and what later ones must be like.

    Raises PipeError (P703) where the loader raises, and where there is no end.
    """

    def __init__(self, make: Make, until: int | None) -> None:
        self._feed = _Feed(make)
        self._drawn: list[Drawn] | None = None
        with _told():
            length = self._feed.length()
        if length is None and until is None:
            raise PipeError(Diagnostic("P703", "the batches of the loader have no length", None, "pass `until`"))
        self._end = min(end for end in (length, until) if end is not None)

    def take(self, step: int, updates: bool, cut: Callable[..., list[Batch]]) -> list[Batch]:
        """The data of a training step for every rank, or what each has to draw. Raises StopIteration at the end.

        ``updates`` says whether optimizers step, ``cut`` makes of inputs and targets the data of every rank. Raises
        PipeError (P703) where the loader raises.
        """
        if step >= self._end:
            raise StopIteration
        if self._drawn is not None:
            return [Batch(step, updates=updates, drawn=drawn) for drawn in self._drawn]
        with _told():
            batch = self._feed.batch(step)
        batches = cut(*parts(batch))
        shapes = signature(batches)
        self._drawn = [Drawn(step, _digest(own), shapes) for own in batches]
        return batches


@contextmanager
def _told() -> Iterator[None]:
    """What the loader raises in the driver, as a finding."""
    try:
        yield
    except Exception as error:
        message = f"the loader raised {type(error).__name__}: {error}"
        raise PipeError(Diagnostic("P703", message, notes=where_raised(error))) from error


class RankLoader:
    """A rank's part: its data of a step."""

    def __init__(self, make: Make, spec: RankSpec) -> None:
        self._feed = _Feed(make)
        self._spec = spec
        self._checked: Drawn | None = None
        self._shapes: tuple[Any, ...] = ()

    def loaded(self, batch: Batch) -> Batch:
        """The batch with its data. What goes wrong is raised where the data is used, as of the operation there."""
        assert batch.drawn is not None
        try:
            if batch.drawn != self._checked:
                self._check(batch.drawn)
            own = self._part(batch.step)
            self._require_shapes(own, batch.drawn)
        except Exception as error:
            missing = _Missing(_unfit(error) if isinstance(error, PipeError) else error)
            return replace(batch, inputs=missing, targets=missing)
        return replace(batch, inputs=own.inputs, targets=own.targets)

    def _part(self, step: int) -> Batch:
        spec = self._spec
        microbatches = spec.placement.rank_of.shape[1]
        inputs, targets = (*parts(self._feed.batch(step)), None)[:2]
        given = require_fit(inputs, targets, microbatches, spec.graph, spec.replicas)
        own = rank_part(given, spec.rank, microbatches, spec.placement)
        return Batch(step, own["inputs"], own["targets"])

    def _check(self, drawn: Drawn) -> None:
        """Both ends of a pipeline draw, so what is not the same everywhere would train inputs on others' targets."""
        own = self._part(drawn.step)
        if _digest(own) != drawn.digest:
            message = f"the loader gave the driver another batch for step {drawn.step} than rank {self._spec.rank}"
            raise LoaderError(message, "seed what is random in it: it is called in several processes")
        self._checked, self._shapes = drawn, signature([own])

    def _require_shapes(self, own: Batch, drawn: Drawn) -> None:
        """The other ranks have made ready for messages that fit the driver's batch."""
        if signature([own]) != self._shapes:
            message = f"the batch of step {own.step} has other shapes than that of step {drawn.step}"
            raise LoaderError(message, "give all batches one shape (`drop_last=True`), or use `train`")


class _Missing(Mapping[tuple[int, int], Tensors]):
    """In the place of data: raises what went wrong with it."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getitem__(self, key: tuple[int, int]) -> NoReturn:
        raise self._error

    def get(self, key: tuple[int, int], default: Any = None) -> NoReturn:
        raise self._error

    def __iter__(self) -> NoReturn:
        raise self._error

    def __len__(self) -> NoReturn:
        raise self._error


def _unfit(error: PipeError) -> LoaderError:
    """A batch that cannot be cut, as what an operation finds wrong."""
    finding = error.diagnostics[0]
    return LoaderError(finding.message, finding.help)


def _digest(own: Batch) -> str:
    """Of the values of a rank's data."""
    found = hashlib.sha256()
    for part in (own.inputs, own.targets):
        for key in sorted(part):
            for tensor in part[key]:
                found.update(repr((key, tensor.shape, tensor.dtype)).encode())
                found.update(bytes_of(tensor).data)
    return found.hexdigest()
