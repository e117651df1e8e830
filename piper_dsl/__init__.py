"""piper-dsl: a language for pipeline-parallel training schedules and its compiler.

>>> import piper_dsl as piper
>>> schedule = piper.load("1f1b", p=4, m=8)
>>> piper.check(schedule)
()
>>> piper.simulate(schedule).makespan
33.0

Importing this package loads neither torch nor ray; :class:`Pipeline` and what cuts models do.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .check import check
from .diagnostics import Diagnostic, PipeError, Related, Severity, Source, Span
from .draw import draw
from .ir import Kind, Operation, Schedule
from .library import library_names, load
from .lower import Program, lower
from .notebook import register as _register
from .simulate import Costs, Timeline, simulate

if TYPE_CHECKING:
    from .models.marks import stage_boundary
    from .models.split import split_model
    from .runtime.pipeline import Pipeline

__all__ = [
    "Costs",
    "Diagnostic",
    "Kind",
    "Operation",
    "PipeError",
    "Pipeline",
    "Program",
    "Related",
    "Schedule",
    "Severity",
    "Source",
    "Span",
    "Timeline",
    "check",
    "draw",
    "library_names",
    "load",
    "lower",
    "simulate",
    "split_model",
    "stage_boundary",
]

__version__ = "0.1.0"

_LAZY = {
    "Pipeline": "piper_dsl.runtime.pipeline",
    "split_model": "piper_dsl.models.split",
    "stage_boundary": "piper_dsl.models.marks",
}


def __getattr__(name: str) -> Any:
    """Loads what needs more than the light core only where it is used."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


_register()
