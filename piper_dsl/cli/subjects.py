"""What visualize and compare are given: schedules to simulate, timelines that were measured, and costs for both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from ..diagnostics import Diagnostic, PipeError
from ..ir.costs import UNIT, Costs
from ..simulate.timeline_file import TIMELINE_SUFFIX, read_timeline
from .common import fit, said
from .options import Timing

if TYPE_CHECKING:
    from ..ir.schedule import Schedule
    from ..simulate import Timeline

__all__ = ["Subjects", "find_subjects"]


@dataclass(frozen=True)
class Subjects:
    """The measured timelines by file, and the ``costs`` of what is simulated.

    ``shared`` says that the costs are those of one model which every schedule cuts into its own stages, and ``source``
    names the file they were measured in, if they were.
    """

    measured: Mapping[str, Timeline]
    costs: Costs
    shared: bool
    source: str = ""

    def measured_under(self, file: str, parameters: Mapping[str, int]) -> Timeline:
        """The timeline of a file. Raises PipeError (P004) where it was measured under other parameters."""
        own = self.measured[file].schedule.parameters
        others = {name: own[name] for name, value in parameters.items() if own.get(name, value) != value}
        if others:
            help_ = "give the parameters it was measured with, or measure again"
            raise PipeError(Diagnostic("P004", f"{file} was measured with {said(others)}", None, help_))
        return self.measured[file]

    def share(self, schedule: Schedule) -> float:
        """How much of what a rank has otherwise one stage of a schedule is."""
        return schedule.ranks / schedule.stages if self.shared else 1.0

    def costs_of(self, schedule: Schedule) -> Costs:
        """The costs of a schedule's part of the model. Raises PipeError (P003) where they are not for this schedule."""
        fit(self.costs, schedule)
        if self.source:
            _require_measured(schedule, self.source, self.measured[self.source], self.costs)
        share = self.share(schedule)
        return self.costs if share == 1.0 else self.costs.scaled(schedule, share)


def find_subjects(
    files: Sequence[str],
    parameters: Iterable[str] | None,
    timing: Timing,
) -> Subjects:
    """Reads the measured timelines. Beside one, and without a profile, its costs are what schedules are simulated with.

    Raises PipeError for files that cannot be used.
    """
    measured = {file: read_timeline(file) for file in files if file.endswith(TIMELINE_SUFFIX)}
    if measured and len(measured) == len(set(files)) and (parameters or timing.given):
        raise typer.BadParameter("a measured timeline has parameters and times: name a schedule beside it")
    source = "" if timing.costs else next(iter(measured), "")
    costs = timing.chosen(measured[source].costs if source else None)
    return Subjects(measured, costs, shared=not (timing.costs or measured), source=source)


def _require_measured(schedule: Schedule, source: str, timeline: Timeline, costs: Costs) -> None:
    """Raises PipeError where a schedule runs what was not measured: unit costs beside seconds would mean nothing."""
    if schedule.stages != timeline.schedule.stages:
        message = f"the costs in {source} are those of {timeline.schedule.stages} stages, {schedule.name} has others"
        raise PipeError(Diagnostic("P003", f"{message}: {schedule.stages}", None, "give a profile with --costs"))
    told = {kinds[0] for kinds in costs.kinds if len(kinds) == 1}
    untold = [kind for kind in UNIT if kind not in told and (schedule.kind == kind).any()]
    if untold:
        names = " and ".join(kind.name for kind in untold)
        message = f"{source} does not say how long {names} take, which {schedule.name} runs"
        options = " ".join(f"--cost {kind.name}=SECONDS" for kind in untold)
        raise PipeError(Diagnostic("P003", message, None, f"add {options}, or a profile with --costs"))
