"""A training run from the command line: what is named, made, trained, measured and reported."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch import nn

from ..diagnostics import Diagnostic, PipeError
from ..ir.schedule import Schedule
from ..models.split import SPLITS, split_model
from ..runtime.measure import StepReport, measured_costs
from ..runtime.pipeline import Pipeline
from ..runtime.profile import profile_text
from ..runtime.whole import WholeModel
from ..simulate import Timeline, simulate, timeline_json
from .common import Format, console, print_json, write_text
from .named import made, named, users_fault
from .recipe import Recipe

__all__ = ["Job", "train"]

_BARS = "▁▂▃▄▅▆▇█"
_WARM_UP = 1
"""Steps left out of measurements: they import, allocate and warm up."""


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


@dataclass(frozen=True)
class _Result:
    """What came of it: what ran, losses by step, a report by step, and the losses of one process if wanted."""

    target: str
    losses: list[float]
    reports: list[StepReport]
    whole: list[float]


def train(job: Job) -> None:
    """Trains and reports. Raises PipeError where something the user named does not work."""
    torch.manual_seed(job.recipe.seed)
    model = made(job.model, "--model", job.schedule.stages)
    _refuse_wrong_model(job, model)
    loss_fn = named(job.loss, "--loss")
    batches = _first(made(job.data, "--data", job.batch), job)
    stages = model if job.split is None else _cut(job, model, batches[0][0])
    with _progress() as progress:
        with _cluster(job.address):
            target, losses, reports = _pipeline(job, stages, loss_fn, batches, progress)
        result = _Result(target, losses, reports, _whole(job, stages, loss_fn, batches, progress))
    if job.profile is not None:
        comment = f"{job.schedule.name} on {result.target}: seconds, medians over {len(_measured(result))} steps"
        write_text(Path(job.profile), profile_text(measured_costs(_measured(result)), comment))
    if job.timeline is not None:
        write_text(Path(job.timeline), timeline_json(_typical(_measured(result))))
    if job.format is Format.JSON:
        print_json(_document(job, result))
    else:
        _print(job, result)


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
) -> tuple[str, list[float], list[StepReport]]:
    bar = progress.add_task(f"{job.target}: starting", total=len(batches))
    losses, reports = [], []
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
    ) as pipeline:
        done = _taken_up(job, pipeline, len(batches))
        progress.update(bar, advance=done)
        for inputs, targets in batches[done:]:
            losses.append(pipeline.step(inputs, targets))
            assert pipeline.last is not None
            reports.append(pipeline.last)
            progress.update(bar, advance=1, description=f"{job.target}: training")
        progress.update(bar, description=f"{job.target}: closing")
    return pipeline.target, losses, reports


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


# --- reporting ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Times:
    """Seconds: the makespan predicted from every other step, and the medians of the steps between."""

    predicted: float
    makespan: float
    step: float


def _measured(result: _Result) -> list[StepReport]:
    """The steps behind the warm-up; all, where there are no others."""
    return result.reports[_WARM_UP:] or result.reports


def _typical(reports: list[StepReport]) -> Timeline:
    """The step whose makespan is the median, with the costs that all of them say."""
    step = sorted(reports, key=lambda report: report.makespan)[(len(reports) - 1) // 2]
    return replace(step.timeline, costs=measured_costs(reports))


def _times(reports: list[StepReport]) -> _Times | None:
    """None for runs too short to be measured on other steps than those that predict."""
    measured = reports[_WARM_UP:]
    if len(measured) < 2:
        return None
    profile, rest = measured[0::2], measured[1::2]
    predicted = simulate(profile[0].schedule, measured_costs(profile)).makespan
    return _Times(predicted, statistics.median(r.makespan for r in rest), statistics.median(r.seconds for r in rest))


def _difference(result: _Result) -> float:
    # The losses of steps before a checkpoint that was taken up are not known.
    return max(abs(ours - whole) for ours, whole in zip(result.losses[::-1], result.whole[::-1], strict=False))


def _document(job: Job, result: _Result) -> dict[str, Any]:
    times = _times(result.reports)
    return {
        "schedule": job.schedule.name,
        "replicas": job.replicas,
        "target": result.target,
        "losses": result.losses,
        "seconds": vars(times) if times else None,
        "largest_difference": _difference(result) if result.whole else None,
    }


def _print(job: Job, result: _Result) -> None:
    terminal = console()
    losses = result.losses
    terminal.print(f"[bold]{escape(result.reports[0].schedule.name)}[/] on {result.target}, {len(losses)} steps")
    terminal.print(f"loss   {losses[0]:.4f} {_curve(losses)} {losses[-1]:.4f}")
    for start in range(0, len(losses), 10):
        terminal.print(f"       {start + 1:>4}  " + "  ".join(f"{loss:.4f}" for loss in losses[start : start + 10]))
    if job.profile is not None:
        terminal.print(f"costs  wrote {escape(job.profile)}, for piper-dsl simulate --costs")
    if job.timeline is not None:
        terminal.print(f"times  wrote {escape(job.timeline)}, for piper-dsl visualize and compare")
    if times := _times(result.reports):
        terminal.print(
            f"time   {times.makespan * 1e3:.1f} ms from the first operation to the last, "
            f"{times.predicted * 1e3:.1f} ms predicted (ratio {times.makespan / times.predicted:.2f})"
        )
        terminal.print(f"       {times.step * 1e3:.1f} ms per step as the driver sees it")
        terminal.print("       predicted: simulated with the operations' median durations in every other step;")
        terminal.print("       measured: the median of the steps between")
    if result.whole:
        terminal.print(f"check  largest difference of losses to one process: {_difference(result):.2e}")


def _curve(losses: list[float]) -> str:
    """A line of bars, one a step, from the smallest loss to the largest."""
    low, high = min(losses), max(losses)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((loss - low) * scale)] for loss in losses)
