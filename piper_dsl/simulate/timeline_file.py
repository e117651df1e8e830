"""Measured timelines as files: JSON that says the schedule, when every operation ran, and the costs in that.

::

    {"piper-dsl": "measured timeline", "version": 1,
     "schedule": "schedule \\"1F1B\\" …",  "parameters": {"p": 2},
     "costs": {"latency": 0.001, "costs": {"F": [0.012, 0.011], …}},
     "ranks": [[["0F0", 0.0, 0.012], …], …]}

Times are in one unit, that of the costs, from the first start on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from ..diagnostics import Diagnostic, PipeError, Source
from ..expand import expand
from ..interop.pipe_text import to_pipe
from ..ir.profile import costs_document, costs_of_document
from ..ir.schedule import Schedule
from ..syntax import parse
from .measured import measured_timeline
from .timeline import Timeline

__all__ = ["TIMELINE_SUFFIX", "read_timeline", "timeline_json"]

TIMELINE_SUFFIX = ".json"
_FORMAT, _VERSION = "measured timeline", 1
_NAMES = ("piper-dsl", "version", "schedule", "parameters", "costs", "ranks")


def timeline_json(timeline: Timeline) -> str:
    """The text of a file of a timeline, which :func:`read_timeline` reads."""
    schedule = timeline.schedule
    names = [str(schedule.operation(index)) for index in range(len(schedule))]
    rows = list(zip(names, timeline.start.tolist(), timeline.end.tolist(), strict=True))
    document = {
        "piper-dsl": _FORMAT,
        "version": _VERSION,
        "schedule": to_pipe(schedule),
        "parameters": dict(schedule.parameters),
        "costs": costs_document(timeline.costs),
        "ranks": [rows[first:after] for first, after in pairwise(schedule.offsets.tolist())],
    }
    return json.dumps(document, ensure_ascii=False) + "\n"


def read_timeline(path: str) -> Timeline:
    """The timeline of a file. Raises :class:`PipeError` (P001, P004) for a file that is none."""
    try:
        return _timeline(json.loads(Path(path).read_text(encoding="utf-8")), path)
    except OSError as error:
        raise PipeError(Diagnostic("P001", f"cannot read {path}: {error.strerror}")) from error
    except PipeError as error:
        said = error.diagnostics[0].message
        raise PipeError(Diagnostic("P004", f"{path}: its schedule cannot be used: {said}", None, _WRITE_ONE)) from error
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise PipeError(Diagnostic("P004", f"{path}: {error}", None, _WRITE_ONE)) from error


_WRITE_ONE = "`piper-dsl run SCHEDULE --timeline FILE` writes one"


def _timeline(document: Any, path: str) -> Timeline:
    """Raises ValueError where the document says something else, PipeError where its schedule does."""
    _require_format(document)
    schedule = expand(parse(Source(f"{path} (its schedule)", _typed(document, "schedule", str))))
    parameters = _typed(document, "parameters", dict)
    if not all(isinstance(value, int) for value in parameters.values()):
        raise ValueError(f"its parameters must be whole numbers, not {parameters}")
    schedule = replace(schedule, parameters=parameters)
    costs = costs_of_document(_typed(document, "costs", dict))
    costs.require_fit(schedule.stages)
    times = np.array(list(_times(schedule, _typed(document, "ranks", list))), dtype=np.float64).reshape(-1, 2)
    return measured_timeline(schedule, times[:, 0], times[:, 1], costs)


def _require_format(document: Any) -> None:
    if isinstance(document, dict) and "traceEvents" in document:
        raise ValueError("a trace is for Perfetto; it does not say the schedule that ran")
    if not isinstance(document, dict) or document.get("piper-dsl") != _FORMAT:
        raise ValueError("this is no measured timeline")
    if document.get("version") != _VERSION:
        raise ValueError(f"its version is {document.get('version')}; this piper-dsl reads version {_VERSION}")
    if extra := sorted(set(document) - set(_NAMES)):
        raise ValueError(f"unknown entries: {extra}; a timeline has {', '.join(_NAMES)}")


def _typed(document: dict[str, Any], name: str, kind: type) -> Any:
    if not isinstance(document.get(name), kind):
        raise ValueError(f"its `{name}` must be a {kind.__name__}, not {type(document.get(name)).__name__}")
    return document[name]


def _times(schedule: Schedule, ranks: list[Any]) -> Iterator[tuple[float, float]]:
    """Start and end of every operation, in the order of the schedule, which is that of the rows."""
    if len(ranks) != schedule.ranks:
        raise ValueError(f"it has the times of {len(ranks)} ranks, and a schedule for {schedule.ranks}")
    for rank, row in enumerate(ranks):
        expected = schedule.row(rank)
        if not isinstance(row, list) or len(row) != len(expected):
            raise ValueError(f"rank {rank} must have the times of its {len(expected)} operations")
        for operation, entry in zip(map(str, expected), row, strict=True):
            if not isinstance(entry, list) or len(entry) != 3 or entry[0] != operation:
                raise ValueError(
                    f"rank {rank} must have [{json.dumps(operation)}, start, end], not {json.dumps(entry)}"
                )
            yield _interval(operation, *entry[1:])


def _interval(operation: str, start: Any, end: Any) -> tuple[float, float]:
    """Raises ValueError for what are no two times, the second at least the first."""
    if not all(isinstance(time, int | float) and isfinite(time) for time in (start, end)) or not 0 <= start <= end:
        raise ValueError(f"{operation} must run from a time of at least 0 to a later one, not from {start} to {end}")
    return float(start), float(end)
