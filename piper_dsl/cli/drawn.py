"""What visualize draws: files under parameters, as they were measured or as they run in thought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from ..diagnostics import Diagnostic, PipeError
from .common import loaded
from .options import Sending
from .subjects import Subjects

if TYPE_CHECKING:
    from ..draw import Ran, Scene, View
    from ..draw.html import Sweep

__all__ = ["Drawn"]


@dataclass(frozen=True)
class Drawn:
    """What is drawn together, and how."""

    files: Sequence[str]
    subjects: Subjects
    sending: Sending
    max_ops: int
    view: View

    def scenes(self, parameters: Mapping[str, int]) -> tuple[list[Scene], list[Diagnostic]]:
        """What a picture shows, and what is wrong with it. Raises PipeError and DrawError."""
        from ..draw import find_scenes

        ran = [self._run(file, parameters) for file in self.files]
        return find_scenes([one for one, _ in ran], self.view), [finding for _, found in ran for finding in found]

    def sweep(self, values: Mapping[str, Sequence[int]]) -> tuple[Sweep, list[Diagnostic]]:
        """The same for every combination of values; where there is no such schedule, why."""
        from ..draw.html import Sweep

        variants: list[Sequence[Scene] | str] = []
        findings: list[Diagnostic] = []
        for chosen in product(*values.values()):
            parameters = dict(zip(values, chosen, strict=True))
            try:
                scenes, found = self.scenes(parameters)
            except PipeError as error:
                said = ", ".join(f"{name} = {value}" for name, value in parameters.items())
                variants.append(f"{said}: {error.diagnostics[0].message}")
                continue
            variants.append(scenes)
            findings += found
        return Sweep(values, variants), findings

    def _run(self, file: str, parameters: Mapping[str, int]) -> tuple[Ran, Sequence[Diagnostic]]:
        """What runs of a file: all, or with findings as much as there is."""
        from ..check import check
        from ..draw import Ran, run_until_stuck
        from ..simulate import simulate

        if file in self.subjects.measured:
            return Ran(self.subjects.measured[file]), ()
        schedule = loaded(file, parameters, self.max_ops)
        costs, findings = self.subjects.costs_of(schedule), check(schedule, self.sending.transport)
        if findings:
            return Ran(*run_until_stuck(schedule, costs), len(findings)), findings
        return Ran(simulate(schedule, costs, self.sending.transport, self.sending.placement)), ()
