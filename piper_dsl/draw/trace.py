"""Timelines as a trace in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

The format is Google's "Trace Event Format": ``X`` is a slice, ``s`` and ``f`` are the ends of a flow, ``C`` is a
counter, ``M`` names a process or a thread. A rank is a process; ``ts`` and ``dur`` are in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..ir.operations import TRANSFERS, Kind
from .boxes import find_parts
from .caption import SEPARATOR, costs_used, facts, memory_counted, title
from .origins import origin_names
from .scene import Scene
from .transfers import find_messages

__all__ = ["trace_json"]

Event = dict[str, Any]

_UNIT = 1000.0
"""Microseconds that a unit of the costs takes: a millisecond, whatever unit the costs are in."""
_OPERATIONS, _WRITTEN_TRANSFERS = 0, 100
"""Threads of a rank: operations, from 1 on those that overlap with them, and the transfers the schedule writes."""


def trace_json(scenes: Sequence[Scene]) -> str:
    """The windows of all timelines as one JSON text, one rank of one timeline a process."""
    events: list[Event] = []
    for index, scene in enumerate(scenes):
        events += _events(scene, first=len(events), process=sum(len(before.ranks) for before in scenes[:index]))
    document = {
        "displayTimeUnit": "ms",
        "otherData": {
            "unit": "1 ms stands for 1 unit of the costs",
            "schedules": [
                SEPARATOR.join((title(scene.timeline), *facts(scene.timeline), *costs_used(scene.timeline)))
                for scene in scenes
            ],
        },
        "traceEvents": events,
    }
    return json.dumps(document, separators=(",", ":")) + "\n"


def _events(scene: Scene, first: int, process: int) -> Iterator[Event]:
    """``first`` is a number from which on the flows of this scene have numbers of their own."""
    threads, ranks = _threads(scene), scene.schedule.rank.tolist()
    yield from _names(scene, process, {(ranks[index], thread) for index, thread in threads.items()})
    yield from _slices(scene, process, threads)
    yield from _flows(scene, process, threads, first)
    yield from _counters(scene, process)


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


def _names(scene: Scene, process: int, used: set[tuple[int, int]]) -> Iterator[Event]:
    for rank, row in scene.row_of.items():
        pid = process + row
        name = f"{title(scene.timeline)}: rank {rank}" if process else f"rank {rank}"
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
    for rank, thread in sorted(used):
        said = "operations" if thread == _OPERATIONS else "overlapped"
        said = "transfers" if thread >= _WRITTEN_TRANSFERS else said
        pid = process + scene.row_of[rank]
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": thread, "args": {"name": said}}


def _slices(scene: Scene, process: int, threads: dict[int, int]) -> Iterator[Event]:
    schedule, places = scene.schedule, origin_names(scene.schedule)
    start, end = scene.timeline.start.tolist(), scene.timeline.end.tolist()
    kinds, ranks, sites = schedule.kind.tolist(), schedule.rank.tolist(), schedule.origin.site.tolist()
    for index, thread in threads.items():
        operation = schedule.operation(index)
        number = "" if operation.microbatch is None else str(operation.microbatch)
        yield {
            "ph": "X",
            "name": f"{operation.kind.name}{number}",
            "cat": Kind(kinds[index]).description,
            "pid": process + scene.row_of[ranks[index]],
            "tid": thread,
            "ts": _time(start[index]),
            "dur": _time(end[index] - start[index]),
            "args": {
                "operation": str(operation),
                "stage": operation.stage,
                "microbatch": operation.microbatch,
                "written at": places[sites[index]],
            },
        }


def _flows(scene: Scene, process: int, threads: dict[int, int], first: int) -> Iterator[Event]:
    """From slice to slice; an end of a flow belongs to the slice around its time, so it lies in the middle."""
    middle = ((scene.timeline.start + scene.timeline.end) / 2).tolist()
    ranks = scene.schedule.rank.tolist()
    found, moves = find_messages(scene), scene.timeline.moves
    pairs = zip(moves.producer[found].tolist(), moves.consumer[found].tolist(), strict=True)
    for number, ends in enumerate(pairs, first):
        for phase, index in zip(("s", "f"), ends, strict=True):
            yield {
                "ph": phase,
                **({"bp": "e"} if phase == "f" else {}),
                "id": number,
                "name": "transfer",
                "cat": "transfer",
                "pid": process + scene.row_of[ranks[index]],
                "tid": threads[index],
                "ts": _time(middle[index]),
            }


def _counters(scene: Scene, process: int) -> Iterator[Event]:
    """What every rank holds, where that changes. Perfetto names the track by both: ``activations held``."""
    counted = memory_counted(scene.timeline)
    for rank, row in scene.row_of.items():
        for time, held in zip(*(column.tolist() for column in scene.timeline.memory_curve(rank)), strict=True):
            if scene.covers(time, time):
                name = {"ph": "C", "name": counted, "pid": process + row}
                yield {**name, "ts": _time(time), "args": {"held": held}}


def _time(value: float) -> float:
    """In microseconds, to the nanosecond, which is what Perfetto keeps."""
    return round(value * _UNIT, 3)
