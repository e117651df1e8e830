"""What ``piper-dsl run`` says of a training run: losses, times against their prediction, files of what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf, isfinite, isnan
from pathlib import Path
from typing import Any

from rich.markup import escape

from ..diagnostics import Diagnostic, PipeError
from ..runtime.measure import StepReport, measured_costs
from ..runtime.profile import profile_text
from ..simulate import Timeline, simulate, timeline_json
from .common import Format, console, print_json, write_text

__all__ = ["Result", "report"]

_BARS = "▁▂▃▄▅▆▇█"
_NO_BAR = "×"
_WARM_UP = 1
"""Steps left out of measurements: they import, allocate and warm up."""


@dataclass(frozen=True)
class Result:
    """What came of a run: what ran where, after how many steps that were ``done`` before; losses and reports by step;
    ``whole``: the losses of one process, all steps, if they were asked for. ``failure`` is what ended it early.
    """

    schedule: str
    replicas: int
    target: str
    done: int
    losses: list[float]
    reports: list[StepReport]
    whole: list[float] = field(default_factory=list)
    failure: PipeError | None = None


def report(result: Result, format: Format, profile: str | None, timeline: str | None) -> None:
    """Says how the run went, then writes the files of measured costs and times that were asked for.

    Raises PipeError for what ended the run early and (P002) for files that could not be written, when all else is
    said and written.
    """
    if format is Format.JSON:
        print_json(_document(result))
    else:
        _print(result)
    findings: list[Diagnostic] = [] if result.failure is None else [*result.failure.diagnostics]
    for path, text, line in _files(result, profile, timeline):
        try:
            write_text(Path(path), text)
        except PipeError as error:
            findings += error.diagnostics
            continue
        if format is Format.TEXT:
            console().print(line.format(escape(path)))
    if findings:
        raise PipeError(*findings)


def _files(result: Result, profile: str | None, timeline: str | None) -> Iterator[tuple[str, str, str]]:
    """Where what is written, and what is said of it."""
    if profile is not None:
        comment = f"{result.schedule} on {result.target}: seconds, medians over {len(_measured(result))} steps"
        text = profile_text(measured_costs(_measured(result)), profile, comment)
        yield profile, text, "costs  wrote {}, for piper-dsl simulate --costs"
    if timeline is not None:
        text = timeline_json(_typical(_measured(result)))
        yield timeline, text, "times  wrote {}, for piper-dsl visualize and compare"


@dataclass(frozen=True)
class _Times:
    """Seconds: the makespan predicted from every other step, and the medians of the steps between."""

    predicted: float
    makespan: float
    step: float


def _measured(result: Result) -> list[StepReport]:
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


def _difference(result: Result) -> float:
    """Of losses to those of one process; infinite where only one of two is finite, 0 where neither is."""
    # The losses of steps before a checkpoint that was taken up are not known.
    pairs = zip(result.losses[::-1], result.whole[::-1], strict=False)
    found = [abs(ours - whole) for ours, whole in pairs if isfinite(ours) or isfinite(whole)]
    return max((inf if isnan(difference) else difference for difference in found), default=0.0)


def _document(result: Result) -> dict[str, Any]:
    times = _times(result.reports)
    return {
        "schedule": result.schedule,
        "replicas": result.replicas,
        "target": result.target,
        "losses": result.losses,
        "seconds": vars(times) if times else None,
        "largest_difference": _difference(result) if result.whole else None,
    }


def _print(result: Result) -> None:
    terminal = console()
    losses = result.losses
    terminal.print(f"[bold]{escape(result.reports[0].schedule.name)}[/] on {result.target}, {len(losses)} steps")
    terminal.print(f"loss   {losses[0]:.4f} {_curve(losses)} {losses[-1]:.4f}")
    for start in range(0, len(losses), 10):
        terminal.print(
            f"       {result.done + start + 1:>4}  " + "  ".join(f"{loss:.4f}" for loss in losses[start : start + 10])
        )
    if said := _diverged(losses, result.done):
        terminal.print(f"       {said}")
    if times := _times(result.reports):
        terminal.print(
            f"time   {times.makespan * 1e3:.1f} ms from the first operation to the last, "
            f"{times.predicted * 1e3:.1f} ms predicted (ratio {times.makespan / times.predicted:.2f})"
        )
        terminal.print(f"       {times.step * 1e3:.1f} ms per step as the driver sees it")
        terminal.print("       predicted: simulated with what operations took in every other step;")
        terminal.print("       measured: the median of the steps between")
    if result.whole:
        terminal.print(f"check  largest difference of losses to one process: {_difference(result):.2e}")


def _curve(losses: list[float]) -> str:
    """A line of bars, one a step, from the smallest loss to the largest; a cross where the loss is not finite."""
    finite = [loss for loss in losses if isfinite(loss)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((loss - low) * scale)] if isfinite(loss) else _NO_BAR for loss in losses)


def _diverged(losses: list[float], done: int) -> str | None:
    """In which steps the loss is not finite, counted from 1 and from the first step of all."""
    steps = [done + number for number, loss in enumerate(losses, 1) if not isfinite(loss)]
    if not steps:
        return None
    if len(steps) == done + len(losses) - steps[0] + 1:
        return f"the loss is not finite from step {steps[0]} on: the training has diverged"
    return f"the loss is not finite in {len(steps)} of {len(losses)} steps, first in step {steps[0]}"
