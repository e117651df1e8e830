"""A training run from the command line: what is named, made, trained, measured and reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch import nn

from ..diagnostics import Diagnostic, PipeError
from ..ir.schedule import Schedule
from ..models.split import SPLITS, split_model
from ..runtime.batch import require_fit
from ..runtime.measure import StepReport
from ..runtime.pipeline import Pipeline
from ..runtime.sigterm import Sigterm
from ..runtime.whole import WholeModel
from .common import Format, require_writable
from .named import made, named, users_fault
from .recipe import make_optimizer, make_settings
from .run_options import Batches, Checkpointing, Measuring, Model, Placing, Updating
from .run_report import Result, report

__all__ = ["Job", "train"]


@dataclass(frozen=True)
class Job:
    """What ``piper-dsl run`` was asked for."""

    schedule: Schedule
    model: Model
    batches: Batches
    placing: Placing
    updating: Updating
    checkpointing: Checkpointing
    measuring: Measuring
    format: Format


def train(job: Job) -> None:
    """Trains and reports. Raises PipeError where something the user named does not work."""
    _require_places(job.measuring, job.checkpointing)
    torch.manual_seed(job.updating.seed)
    model = made(job.model.model, "--model", job.schedule.stages)
    _refuse_wrong_model(job.model, model)
    loss_fn = named(job.model.loss, "--loss")
    data = _first(job.batches, job.measuring.compare)
    microbatches = job.schedule.microbatches * job.placing.replicas
    inputs, targets = data.batches[0]
    require_fit(inputs, targets, microbatches, job.schedule.graph, job.placing.replicas)
    if job.model.split is not None:
        model = _cut(model, job.model.split, job.schedule.stages, microbatches, inputs)
    with Sigterm().listening(), _progress() as progress:
        with _cluster(job.placing.address):
            result = _pipeline(job, model, loss_fn, data, progress)
        if job.measuring.compare and result.failure is None:
            result = replace(result, whole=_whole(job, model, loss_fn, data.batches, progress))
    report(result, job.format, job.measuring.profile, job.measuring.timeline)


def _require_places(measuring: Measuring, checkpointing: Checkpointing) -> None:
    """Raises PipeError (P002) where what is to be kept of the training would find no place at its end."""
    for path in (measuring.profile, measuring.timeline):
        if path is not None:
            require_writable(Path(path))
    if checkpointing.checkpoints is not None:
        require_writable(Path(checkpointing.checkpoints), folder=True)


# --- making what is named ----------------------------------------------------------------------


def _refuse_wrong_model(asked: Model, model: Any) -> None:
    if asked.split is not None and isinstance(model, nn.Module):
        return
    if asked.split is not None:
        raise PipeError(Diagnostic("P701", f"with --split, --model {asked.model} must return one torch module"))
    if not isinstance(model, Sequence) or not all(isinstance(stage, nn.Module) for stage in model):
        help_ = "add --split time to cut one module into stages" if isinstance(model, nn.Module) else None
        message = f"--model {asked.model} must return a list of torch modules, one per stage"
        raise PipeError(Diagnostic("P701", message, None, help_))


def _cut(model: nn.Module, how: str, stages: int, microbatches: int, inputs: Any) -> list[nn.Module]:
    """The model in so many stages, cut by the first microbatch of a batch."""
    split = how if how in SPLITS else [name.strip() for name in how.split(",")]
    parts = inputs if isinstance(inputs, tuple | list) else (inputs,)
    example = [x.chunk(microbatches)[0] if isinstance(x, torch.Tensor) and x.dim() else x for x in parts]
    return split_model(model, example, split, stages=stages)


@dataclass(frozen=True)
class _Data:
    """Of the data of so many ``steps``, the ``batches`` that are needed here."""

    batches: list[Any]
    steps: int


@dataclass(frozen=True)
class _Loader:
    """Makes batches in the process that calls it."""

    name: str
    size: int

    def __call__(self) -> Any:
        return made(self.name, "--data", self.size)


def _first(asked: Batches, compare: bool) -> _Data:
    """As many batches as there are steps, fewer where the data ends; the first, where ranks load and nobody compares.

    Raises PipeError (P701, P703) for what are no batches.
    """
    batches, name = made(asked.data, "--data", asked.batch), f"--data {asked.data}"
    if not isinstance(batches, Iterable):
        message = f"{name} must return an iterable of (inputs, targets), not a {type(batches).__name__}"
        raise PipeError(Diagnostic("P703", message))
    try:
        found = list(islice(batches, 1 if asked.load_in_ranks and not compare else asked.steps))
    except Exception as error:
        raise users_fault(f"{name} raised", error) from error
    if not found:
        raise PipeError(Diagnostic("P703", f"{name} has no batch"))
    for number, batch in enumerate(found):
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise PipeError(Diagnostic("P703", f"{name}: batch {number} is not a pair (inputs, targets)"))
    if not asked.load_in_ranks:
        return _Data(found, len(found))
    return _Data(found, min(asked.steps, len(batches)) if isinstance(batches, Sized) else asked.steps)


# --- training ----------------------------------------------------------------------------------


def _progress() -> Progress:
    terminal = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal)


def _cluster(address: str | None) -> AbstractContextManager[None]:
    """The cluster that was asked for; else whatever the target starts."""
    if address is None:
        return nullcontext()
    from ..targets.cluster import joined

    return joined(address)


def _pipeline(
    job: Job, stages: Sequence[nn.Module], loss_fn: Callable[..., Any], data: _Data, progress: Progress
) -> Result:
    placing, kept, asked = job.placing, job.checkpointing, job.batches
    bar = progress.add_task(f"{placing.target.value}: starting", total=data.steps)
    losses: list[float] = []
    reports: list[StepReport] = []
    with Pipeline(
        stages,
        job.schedule,
        loss_fn=loss_fn,
        optimizer=make_optimizer(job.updating),
        **vars(make_settings(job.updating, job.batches.steps)),
        replicas=placing.replicas,
        loader=_Loader(asked.data, asked.batch) if asked.load_in_ranks else None,
        checkpoints=kept.checkpoints,
        checkpoint_every=kept.every,
        max_restarts=kept.max_restarts,
        target=placing.target.value,
        transport=placing.transport.value,
        timeout=placing.timeout,
        num_cpus=placing.num_cpus,
        num_gpus=placing.num_gpus,
        strategy=placing.strategy.value,
    ) as pipeline:
        done = _taken_up(kept, pipeline, data.steps)
        progress.update(bar, advance=done)
        failure = None
        try:
            with _saved(kept, pipeline):
                for loss in _losses(pipeline, data, done, asked.load_in_ranks, placing.steps_per_call):
                    losses.append(loss)
                    assert pipeline.last is not None
                    reports.append(pipeline.last)
                    progress.update(bar, advance=1, description=f"{placing.target.value}: training")
        except PipeError as error:
            if not reports:
                raise
            # The steps before it were made, and are told of first.
            failure = error
        progress.update(bar, description=f"{placing.target.value}: closing")
    return Result(job.schedule.name, placing.replicas, pipeline.target, done, losses, reports, failure=failure)


def _losses(pipeline: Pipeline, data: _Data, done: int, load_in_ranks: bool, steps_per_call: int) -> Iterator[float]:
    if load_in_ranks:
        return pipeline.train_loaded(data.steps, steps_per_call)
    return pipeline.train(data.batches[done:], steps_per_call)


@contextmanager
def _saved(asked: Checkpointing, pipeline: Pipeline) -> Iterator[None]:
    """Ends with a checkpoint, where there are to be any; also where it is ended by SIGTERM."""
    if asked.checkpoints is None:
        yield
        return
    with pipeline.saving_on_sigterm():
        yield
    pipeline.save()


def _taken_up(asked: Checkpointing, pipeline: Pipeline, batches: int) -> int:
    """How many of the batches are done in the checkpoint that is taken up, if one is."""
    done = pipeline.resume() if asked.resume else 0
    if done >= batches:
        message = f"the checkpoint in {asked.checkpoints} has {done} steps, and there are batches for {batches}"
        raise PipeError(Diagnostic("P703", message, None, "--steps counts from the first; give a larger number"))
    return done


def _whole(
    job: Job, stages: Sequence[nn.Module], loss_fn: Callable[..., Any], batches: list[Any], progress: Progress
) -> list[float]:
    """The losses of the same steps in one process."""
    bar = progress.add_task("one process", total=len(batches))
    model = WholeModel(stages, loss_fn, make_optimizer(job.updating), make_settings(job.updating, job.batches.steps))
    losses = []
    for inputs, targets in batches:
        losses.append(model.step(inputs, targets))
        progress.advance(bar)
    return losses
