"""Measured timelines as files: JSON that says the schedule, when every operation ran, and the costs in that.

::

    {"piper-dsl": "measured timeline", "version": 1,
     "schedule": "schedule \\"1F1B\\" …",  "parameters": {"p": 2},
     "costs": {"latency": 0.001, "costs": {"F": [0.012, 0.011], …}},
     "ranks": [[["0F0", 0.0, 0.012], …], …]}

Times are in seconds from the first start on, and so are those of the costs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..check import check
from ..diagnostics import Diagnostic, PipeError, Source
from ..expand import expand
from ..interop.pipe_text import to_pipe
from ..ir.memory import MOST
from ..ir.operations import TRANSFERS, Kind
from ..ir.profile import costs_document, costs_of_document
from ..ir.schedule import Schedule
from ..syntax import parse
from ..syntax.builder import LARGEST_INTEGER
from .measured import measured_timeline
from .timeline import Timeline

__all__ = ["TIMELINE_SUFFIX", "read_timeline", "timeline_json"]

TIMELINE_SUFFIX = ".json"
_FORMAT, _VERSION = "measured timeline", 1
_LONGEST = 60
"""Characters of what a file says that a message repeats."""
_WORDS = re.compile(r'"(?:[^"\\]|\\.)*"|NaN|-?Infinity')
"""Words that Python reads as numbers and JSON does not have, and texts, in which they mean nothing."""
_NAMES = ("piper-dsl", "version", "schedule", "parameters", "costs", "ranks")


def timeline_json(timeline: Timeline) -> str:
    """The text of a file of a timeline in seconds, which :func:`read_timeline` reads."""
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
    """The timeline of a file, in seconds. Raises :class:`PipeError` (P001, P004) for a file that is none."""
    try:
        text = Source.decoded(path, Path(path).read_bytes()).text
    except OSError as error:
        raise PipeError(Diagnostic("P001", f"cannot read {path}: {error.strerror}")) from error
    try:
        return _timeline(_document(text), path)
    except PipeError as error:
        said = error.diagnostics[0].message
        raise PipeError(Diagnostic("P004", f"{path}: its schedule cannot be used: {said}", None, _WRITE_ONE)) from error
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise PipeError(Diagnostic("P004", f"{path}: {error}", None, _WRITE_ONE)) from error


_WRITE_ONE = "`piper-dsl run SCHEDULE --timeline FILE` writes one"


def _document(text: str) -> Any:
    """What JSON says. Raises ValueError, with the place, for what is none: Python would also read NaN and Infinity."""

    def refuse(word: str) -> None:
        place = next(token.start() for token in _WORDS.finditer(text) if token[0] == word)
        raise json.JSONDecodeError(f"{word} is no number of JSON", text, place)

    return json.loads(text, parse_constant=refuse)


def _timeline(document: Any, path: str) -> Timeline:
    """Raises ValueError where the document says something else, PipeError where its schedule does."""
    _require_format(document)
    text = _typed(document, "schedule", str)
    text.encode()  # JSON can say half a character, which nobody could print
    schedule = expand(parse(Source(f"{path} (its schedule)", text)))
    if findings := check(schedule):
        raise PipeError(*findings)
    schedule = replace(schedule, parameters=dict(_parameters(_typed(document, "parameters", dict))))
    costs = costs_of_document(_typed(document, "costs", dict))
    costs.require_fit(schedule.stages)
    times = np.array(list(_times(schedule, _typed(document, "ranks", list))), dtype=np.float64).reshape(-1, 2)
    timeline = measured_timeline(schedule, times[:, 0], times[:, 1], costs)
    for rank in range(schedule.ranks):
        _require_order(timeline, rank)
    return timeline


def _require_format(document: Any) -> None:
    if isinstance(document, dict) and "traceEvents" in document:
        raise ValueError("a trace is for Perfetto; it does not say the schedule that ran")
    if not isinstance(document, dict) or document.get("piper-dsl") != _FORMAT:
        raise ValueError("this is no measured timeline")
    version = document.get("version")
    if type(version) is not int or version != _VERSION:
        raise ValueError(f"its version is {_shown(version)}; this piper-dsl reads version {_VERSION}")
    if extra := sorted(set(document) - set(_NAMES)):
        raise ValueError(f"unknown entries: {extra}; a timeline has {', '.join(_NAMES)}")


def _shown(value: Any) -> str:
    """What a file says, as it stands there; of what is long, the beginning."""
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _typed(document: dict[str, Any], name: str, kind: type) -> Any:
    if not isinstance(document.get(name), kind):
        raise ValueError(f"its `{name}` must be a {kind.__name__}, not {type(document.get(name)).__name__}")
    return document[name]


def _parameters(said: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Raises ValueError for what no schedule has as a parameter."""
    for name, value in said.items():
        if not (name.isidentifier() and name.isascii()):
            raise ValueError(f"its parameters have names as in `p`, not {_shown(name)}")
        if type(value) is not int or abs(value) > LARGEST_INTEGER:
            raise ValueError(
                f"its parameter {name} must be a whole number that schedules can have, not {_shown(value)}"
            )
        yield name, value


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
                raise ValueError(f"rank {rank} must have [{_shown(operation)}, start, end], not {_shown(entry)}")
            yield _interval(operation, *entry[1:])


def _interval(operation: str, start: Any, end: Any) -> tuple[float, float]:
    """Raises ValueError for what are no two times, the second at least the first."""
    are_numbers = all(type(time) in (int, float) for time in (start, end))
    if not are_numbers or not 0 <= start <= end <= MOST:
        raise ValueError(
            f"{operation} must run from a time of at least 0 to a later one of at most {MOST:g} s, "
            f"not from {_shown(start)} to {_shown(end)}"
        )
    return float(start), float(end)


def _require_order(timeline: Timeline, rank: int) -> None:
    """Raises ValueError where a rank starts something while it runs what stands before.

    Transfers run beside the rest, and optimizers at the end of a step, wherever their OPT stands. Ranks are not
    compared with each other: those of two machines have clocks of their own.
    """
    schedule, start, end = timeline.schedule, timeline.start, timeline.end
    before = -1
    for index in range(*schedule.offsets[rank : rank + 2].tolist()):
        if schedule.kind[index] in TRANSFERS:
            continue
        apart = before >= 0 and schedule.slot[index] != schedule.slot[before]
        if apart and start[index] < end[before]:
            late, early = schedule.operation(before), schedule.operation(index)
            raise ValueError(
                f"rank {rank} runs {late} before {early}, but {late} ends at {end[before]:g} and {early} starts at "
                f"{start[index]:g}"
            )
        if schedule.kind[index] != Kind.OPT:
            before = index
