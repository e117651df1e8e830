"""A training run from the command line: what is named, made, trained, measured and reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch import nn

from ..diagnostics import Diagnostic, PipeError
from ..ir.schedule import Schedule
from ..models.split import SPLITS, split_model
from ..runtime.measure import StepReport
from ..runtime.pipeline import Pipeline
from ..runtime.sigterm import Sigterm
from ..runtime.whole import WholeModel
from .common import Format
from .named import made, named, users_fault
from .recipe import Recipe
from .run_report import Result, report

__all__ = ["Job", "train"]


@dataclass(frozen=True)
class Job:
    """What ``piper-dsl run`` was asked for; functions by name, as ``module:function``."""

    schedule: Schedule
    model: str
    split: str | None
    data: str
    loss: str
    steps: int
    target: str
    address: str | None
    num_cpus: float
    num_gpus: int | None
    strategy: str
    replicas: int
    batch: int
    recipe: Recipe
    compare: bool
    transport: str
    timeout: float | None
    checkpoints: str | None
    checkpoint_every: int
    max_restarts: int
    resume: bool
    profile: str | None
    timeline: str | None
    format: Format


def train(job: Job) -> None:
    """Trains and reports. Raises PipeError where something the user named does not work."""
    torch.manual_seed(job.recipe.seed)
    model = made(job.model, "--model", job.schedule.stages)
    _refuse_wrong_model(job, model)
    loss_fn = named(job.loss, "--loss")
    batches = _first(made(job.data, "--data", job.batch), job)
    stages = model if job.split is None else _cut(job, model, batches[0][0])
    with Sigterm().listening(), _progress() as progress:
        with _cluster(job.address):
            result = _pipeline(job, stages, loss_fn, batches, progress)
        result = replace(result, whole=_whole(job, stages, loss_fn, batches, progress))
    report(result, job.format, job.profile, job.timeline)


# --- making what is named ----------------------------------------------------------------------


def _refuse_wrong_model(job: Job, model: Any) -> None:
    if job.split is not None and isinstance(model, nn.Module):
        return
    if job.split is not None:
        raise PipeError(Diagnostic("P701", f"with --split, --model {job.model} must return one torch module"))
    if not isinstance(model, Sequence) or not all(isinstance(stage, nn.Module) for stage in model):
        help_ = "add --split time to cut one module into stages" if isinstance(model, nn.Module) else None
        message = f"--model {job.model} must return a list of torch modules, one per stage"
        raise PipeError(Diagnostic("P701", message, None, help_))


def _cut(job: Job, model: nn.Module, inputs: Any) -> list[nn.Module]:
    """The model in as many stages as the schedule has, cut by the first microbatch of a batch."""
    how = job.split or ""
    split = how if how in SPLITS else [name.strip() for name in how.split(",")]
    parts = inputs if isinstance(inputs, tuple | list) else (inputs,)
    count = job.schedule.microbatches * job.replicas
    example = [x.chunk(count)[0] if isinstance(x, torch.Tensor) and x.dim() else x for x in parts]
    return split_model(model, example, split, stages=job.schedule.stages)


def _first(batches: Any, job: Job) -> list[Any]:
    """As many batches as there are steps; fewer where the data ends."""
    if not isinstance(batches, Iterable):
        raise PipeError(
            Diagnostic(
                "P703",
                f"--data {job.data} must return an iterable of (inputs, targets), not a {type(batches).__name__}",
            )
        )
    try:
        found = [batch for _, batch in zip(range(job.steps), batches, strict=False)]
    except Exception as error:
        raise users_fault(f"--data {job.data} raised", error) from error
    if not found:
        raise PipeError(Diagnostic("P703", f"--data {job.data} has no batch"))
    for number, batch in enumerate(found):
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise PipeError(Diagnostic("P703", f"--data {job.data}: batch {number} is not a pair (inputs, targets)"))
    return found


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
    job: Job, stages: Sequence[nn.Module], loss_fn: Callable[..., Any], batches: list[Any], progress: Progress
) -> Result:
    bar = progress.add_task(f"{job.target}: starting", total=len(batches))
    losses: list[float] = []
    reports: list[StepReport] = []
    with Pipeline(
        stages,
        job.schedule,
        loss_fn=loss_fn,
        optimizer=job.recipe.make_optimizer(),
        **vars(job.recipe.settings(job.steps)),
        replicas=job.replicas,
        checkpoints=job.checkpoints,
        checkpoint_every=job.checkpoint_every,
        max_restarts=job.max_restarts,
        target=job.target,
        transport=job.transport,
        timeout=job.timeout,
        num_cpus=job.num_cpus,
        num_gpus=job.num_gpus,
        strategy=job.strategy,
    ) as pipeline:
        done = _taken_up(job, pipeline, len(batches))
        progress.update(bar, advance=done)
        with _saved(job, pipeline):
            for inputs, targets in batches[done:]:
                losses.append(pipeline.step(inputs, targets))
                assert pipeline.last is not None
                reports.append(pipeline.last)
                progress.update(bar, advance=1, description=f"{job.target}: training")
        progress.update(bar, description=f"{job.target}: closing")
    return Result(job.schedule.name, job.replicas, pipeline.target, done, losses, reports)


@contextmanager
def _saved(job: Job, pipeline: Pipeline) -> Iterator[None]:
    """Ends with a checkpoint, where there are to be any; also where it is ended by SIGTERM."""
    if job.checkpoints is None:
        yield
        return
    with pipeline.saving_on_sigterm():
        yield
    pipeline.save()


def _taken_up(job: Job, pipeline: Pipeline, batches: int) -> int:
    """How many of the batches are done in the checkpoint that is taken up, if one is."""
    done = pipeline.resume() if job.resume else 0
    if done >= batches:
        message = f"the checkpoint in {job.checkpoints} has {done} steps, and there are batches for {batches}"
        raise PipeError(Diagnostic("P703", message, None, "--steps counts from the first; give a larger number"))
    return done


def _whole(
    job: Job, stages: Sequence[nn.Module], loss_fn: Callable[..., Any], batches: list[Any], progress: Progress
) -> list[float]:
    if not job.compare:
        return []
    bar = progress.add_task("one process", total=len(batches))
    model = WholeModel(stages, loss_fn, job.recipe.make_optimizer(), job.recipe.settings(job.steps))
    losses = []
    for inputs, targets in batches:
        losses.append(model.step(inputs, targets))
        progress.advance(bar)
    return losses
