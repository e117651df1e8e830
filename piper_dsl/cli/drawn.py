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

_OF_VALUES = frozenset(f"P{number:03}" for number in (3, 4, 203, 204, 206, 208, 211, *range(213, 222)))
"""Findings that other values of parameters may not have; all else is wrong with the file, or with the names given."""


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
        """The same for every combination of values; where there is no such picture, why.

        Raises PipeError for what no values would mend, and DrawError where a page would be too large.
        """
        from ..draw.html import find_sweep

        findings: list[Diagnostic] = []
        combinations = (dict(zip(values, chosen, strict=True)) for chosen in product(*values.values()))
        return find_sweep(values, (self._variant(parameters, findings) for parameters in combinations)), findings

    def _variant(self, parameters: Mapping[str, int], findings: list[Diagnostic]) -> Sequence[Scene] | str:
        """What a picture shows, or why there is none; what is wrong with it is added to ``findings``."""
        from ..draw import DrawError

        try:
            scenes, found = self.scenes(parameters)
        except PipeError as error:
            if {finding.code for finding in error.diagnostics} - _OF_VALUES:
                raise
            return _refusal(parameters, error.diagnostics[0].message)
        except DrawError as error:
            return _refusal(parameters, error.message)
        findings += found
        return scenes

    def _run(self, file: str, parameters: Mapping[str, int]) -> tuple[Ran, Sequence[Diagnostic]]:
        """What runs of a file: all, or with findings as much as there is."""
        from ..check import check
        from ..draw import Ran, run_until_stuck
        from ..simulate import simulate

        if file in self.subjects.measured:
            return Ran(self.subjects.measured_under(file, parameters)), ()
        schedule = loaded(file, parameters, self.max_ops)
        costs, findings = self.subjects.costs_of(schedule), check(schedule, self.sending.transport)
        if findings:
            return Ran(*run_until_stuck(schedule, costs), len(findings)), findings
        return Ran(simulate(schedule, costs, self.sending.transport, self.sending.placement)), ()


def _refusal(parameters: Mapping[str, int], why: str) -> str:
    return f"{', '.join(f'{name} = {value}' for name, value in parameters.items())}: {why}"
