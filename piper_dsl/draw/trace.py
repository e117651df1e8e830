"""Timelines as a trace in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

The format is Google's "Trace Event Format": ``X`` is a slice, ``s`` and ``f`` are the ends of a flow, ``C`` is a
counter, ``M`` names a process or a thread. A rank is a process; ``ts`` and ``dur`` are in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.operations import TRANSFERS, Kind
from .boxes import find_parts
from .caption import SEPARATOR, costs_used, facts, memory_counted, number, title
from .origins import origin_names
from .scene import Scene
from .transfers import find_messages

__all__ = ["trace_json"]

Event = dict[str, Any]

_MILLISECOND, _SECOND = 1e3, 1e6
"""In microseconds, what a unit of the costs is in a trace: a measured one is a second."""
_SHORTEST, _LONGEST = 1e2, 1e15
"""In microseconds, a trace of simulated times: in nanoseconds they must differ, and 64 bits must hold them."""
_OPERATIONS, _WRITTEN_TRANSFERS = 0, 100
"""Threads of a rank: operations, from 1 on those that overlap with them, and the transfers the schedule writes."""


@dataclass(frozen=True)
class _Part:
    """One timeline: its ranks are processes from ``process`` on, a unit of its costs takes ``unit`` microseconds."""

    scene: Scene
    process: int
    unit: float

    def pid(self, rank: int) -> int:
        return self.process + self.scene.row_of[rank]

    def time(self, value: float) -> float:
        """In microseconds, to the nanosecond, which is what Perfetto keeps."""
        return round(value * self.unit, 3)


def trace_json(scenes: Sequence[Scene]) -> str:
    """The windows of all timelines as one JSON text, one rank of one timeline a process."""
    events: list[Event] = []
    unit = _find_unit(scenes)
    for index, scene in enumerate(scenes):
        process = sum(len(before.ranks) for before in scenes[:index])
        events += _events(_Part(scene, process, unit), first=len(events))
    document = {
        "displayTimeUnit": "ms",
        "otherData": {
            "unit": f"{number(unit / _MILLISECOND)} ms stands for 1 unit of the costs",
            "schedules": [
                SEPARATOR.join((title(scene.timeline), *facts(scene.timeline), *costs_used(scene.timeline)))
                for scene in scenes
            ],
        },
        "traceEvents": events,
    }
    return json.dumps(document, separators=(",", ":")) + "\n"


def _find_unit(scenes: Sequence[Scene]) -> float:
    """Microseconds a unit of the costs: a second if measured, else a millisecond, or a thousand times more or less."""
    if any(scene.timeline.measured for scene in scenes):
        return _SECOND
    last = max(float(scene.timeline.end[scene.shown].max(initial=scene.end)) for scene in scenes)
    unit = _MILLISECOND
    while 0 < last * unit < _SHORTEST:
        unit *= 1000
    while last * unit > _LONGEST:
        unit /= 1000
    return unit


def _events(part: _Part, first: int) -> Iterator[Event]:
    """``first`` is a number from which on the flows of this scene have numbers of their own."""
    threads, ranks = _threads(part.scene), part.scene.schedule.rank.tolist()
    yield from _names(part, {(ranks[index], thread) for index, thread in threads.items()})
    yield from _slices(part, threads)
    yield from _flows(part, threads, first)
    yield from _counters(part)


def _threads(scene: Scene) -> dict[int, int]:
    """The thread of every operation shown."""
    part, schedule = find_parts(scene.schedule)[0], scene.schedule
    threads = {index: _OPERATIONS + int(part[index]) for index in scene.shown.tolist()}
    transfers = scene.shown[np.isin(schedule.kind[scene.shown], TRANSFERS)]
    for rank in np.unique(schedule.rank[transfers]).tolist():
        threads.update(_side_by_side(scene, transfers[schedule.rank[transfers] == rank]))
    return threads


def _side_by_side(scene: Scene, transfers: np.ndarray) -> Iterator[tuple[int, int]]:
    """Threads for the transfers of a rank, as many as go on at once: slices of one thread must not cross."""
    free: list[float] = []
    for index in transfers[np.argsort(scene.timeline.start[transfers], kind="stable")].tolist():
        start, end = float(scene.timeline.start[index]), float(scene.timeline.end[index])
        lane = next((lane for lane, since in enumerate(free) if since <= start), len(free))
        free[lane : lane + 1] = [end]
        yield index, _WRITTEN_TRANSFERS + lane


def _names(part: _Part, used: set[tuple[int, int]]) -> Iterator[Event]:
    scene = part.scene
    for rank in scene.ranks:
        pid = part.pid(rank)
        name = f"{title(scene.timeline)}: rank {rank}" if part.process else f"rank {rank}"
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
    for rank, thread in sorted(used):
        said = "operations" if thread == _OPERATIONS else "overlapped"
        said = "transfers" if thread >= _WRITTEN_TRANSFERS else said
        pid = part.pid(rank)
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": thread, "args": {"name": said}}


def _slices(part: _Part, threads: dict[int, int]) -> Iterator[Event]:
    scene = part.scene
    schedule, places = scene.schedule, origin_names(scene.schedule)
    start, end = scene.timeline.start.tolist(), scene.timeline.end.tolist()
    kinds, ranks, sites = schedule.kind.tolist(), schedule.rank.tolist(), schedule.origin.site.tolist()
    for index, thread in threads.items():
        operation = schedule.operation(index)
        microbatch = "" if operation.microbatch is None else str(operation.microbatch)
        yield {
            "ph": "X",
            "name": f"{operation.kind.name}{microbatch}",
            "cat": Kind(kinds[index]).description,
            "pid": part.pid(ranks[index]),
            "tid": thread,
            "ts": part.time(start[index]),
            "dur": part.time(end[index] - start[index]),
            "args": {
                "operation": str(operation),
                "stage": operation.stage,
                "microbatch": operation.microbatch,
                "written at": places[sites[index]],
            },
        }


def _flows(part: _Part, threads: dict[int, int], first: int) -> Iterator[Event]:
    """From slice to slice; an end of a flow belongs to the slice around its time, so it lies in the middle."""
    scene = part.scene
    middle = ((scene.timeline.start + scene.timeline.end) / 2).tolist()
    ranks = scene.schedule.rank.tolist()
    found, moves = find_messages(scene), scene.timeline.moves
    pairs = zip(moves.producer[found].tolist(), moves.consumer[found].tolist(), strict=True)
    for flow, ends in enumerate(pairs, first):
        for phase, index in zip(("s", "f"), ends, strict=True):
            yield {
                "ph": phase,
                **({"bp": "e"} if phase == "f" else {}),
                "id": flow,
                "name": "transfer",
                "cat": "transfer",
                "pid": part.pid(ranks[index]),
                "tid": threads[index],
                "ts": part.time(middle[index]),
            }


def _counters(part: _Part) -> Iterator[Event]:
    """What every rank holds, where that changes. Perfetto names the track by both: ``activations held``."""
    scene = part.scene
    counted = memory_counted(scene.timeline)
    for rank in scene.ranks:
        for time, held in zip(*(column.tolist() for column in scene.timeline.memory_curve(rank)), strict=True):
            if scene.covers(time, time):
                name = {"ph": "C", "name": counted, "pid": part.pid(rank)}
                yield {**name, "ts": part.time(time), "args": {"held": held}}
