"""The words around a picture: what was drawn, what came out, and under which costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from ..ir.memory import ACTIVATIONS
from ..ir.operations import TRANSFERS, Kind
from ..simulate.timeline import Timeline
from .boxes import find_parts
from .scene import Scene

__all__ = [
    "NOTHING_LASTS",
    "SEPARATOR",
    "costs_used",
    "facts",
    "heading",
    "memory_counted",
    "number",
    "shortened",
    "title",
    "wrap",
]

SEPARATOR = " · "
NOTHING_LASTS = "nothing here takes time"
_MOST_PEAKS = 16
_MOST_NUMBERS = 4
_SAID_ANYWAY = frozenset({"p", "m"})


def title(timeline: Timeline) -> str:
    """Name, ranks, microbatches and the other parameters: ``1F1B  p=4 m=8``; whether it was measured."""
    schedule = timeline.schedule
    others = [f" {name}={value}" for name, value in schedule.parameters.items() if name not in _SAID_ANYWAY]
    measured = ", measured" if timeline.measured else ""
    return f"{schedule.name}{measured}  p={schedule.ranks} m={schedule.microbatches}{''.join(others)}"


def heading(scene: Scene) -> list[str]:
    """What came out, or how far it got, and what the window leaves away."""
    said = list(_progress(scene)) if scene.heads else list(facts(scene.timeline))
    if scene.findings:
        said.append(f"{scene.findings} finding{'s' if scene.findings > 1 else ''}: this is no valid schedule")
    if not scene.whole:
        ranks = "" if len(scene.ranks) == scene.schedule.ranks else f", ranks {shortened(scene.ranks)}"
        last = number(scene.timeline.makespan)
        window = f"{number(scene.start)} to {number(scene.end)}"
        ended = not scene.heads and scene.start >= scene.timeline.makespan
        said.append(f"ended at {last}, before {window}{ranks}" if ended else f"shown: {window} of {last}{ranks}")
    return said


def facts(timeline: Timeline) -> tuple[str, ...]:
    """Makespan, both bubbles and the peak activations."""
    bubble = timeline.bubble
    return (
        f"makespan {number(timeline.makespan)}",
        f"bubble {bubble.idle:.1%} of makespan, {bubble.span:.1%} of span",
        f"peak {_memory(timeline)}",
    )


def memory_counted(timeline: Timeline) -> str:
    """What the memory of a timeline counts: activations, or everything that a profile has sizes of."""
    counted = replace(timeline.costs.memory, released_at_input=0.0)
    return "activations" if counted == ACTIVATIONS else "memory"


def _memory(timeline: Timeline) -> str:
    return f"{memory_counted(timeline)} {_peaks(timeline.peak_memory)}"


def _progress(scene: Scene) -> Iterator[str]:
    yield f"stuck: {len(scene.schedule)} operations run, then nothing goes on"
    shown = [f"rank {head.rank} at {head.operation}" for head in scene.heads[:_MOST_NUMBERS]]
    yield ", ".join(shown) + (", …" if len(scene.heads) > _MOST_NUMBERS else "")


def costs_used(timeline: Timeline) -> Iterator[str]:
    """What kinds and overlapped slots took, what passed between ranks, and the transport."""
    schedule = timeline.schedule
    duration = timeline.end - timeline.start
    alone = find_parts(schedule)[1] == 1
    alone &= ~np.isin(schedule.kind, TRANSFERS)
    lasting = np.unique(schedule.kind[alone & (duration > 0)]).tolist()
    used = [f"{Kind(kind).name} {_range(duration[alone & (schedule.kind == kind)])}" for kind in lasting]
    for kinds, slots in _overlapped(schedule.slots.first, schedule.kind).items():
        used.append(f"{'&'.join(kind.name for kind in kinds)} {_range(duration[slots])}")
    if used:
        yield f"costs {', '.join(used)}"
    costs = timeline.costs
    if costs.latency:
        yield f"latency {number(costs.latency)}"
    if costs.bandwidth < inf and np.any(costs.memory.of("output", schedule.stages)):
        yield f"bandwidth {number(costs.bandwidth)}"
    yield "as measured" if timeline.measured else f"transport {timeline.transport}"


def _overlapped(first: np.ndarray, kind: np.ndarray) -> dict[tuple[Kind, ...], list[int]]:
    """The first operations of all slots that hold several, by their kinds."""
    found: dict[tuple[Kind, ...], list[int]] = {}
    for slot in np.flatnonzero(np.diff(first) > 1).tolist():
        kinds = tuple(Kind(member) for member in sorted(kind[first[slot] : first[slot + 1]].tolist()))
        found.setdefault(kinds, []).append(int(first[slot]))
    return found


def _range(durations: np.ndarray) -> str:
    least, most = number(float(durations.min())), number(float(durations.max()))
    return least if least == most else f"{least} to {most}"


def number(value: float) -> str:
    """A time as a reader wants it: up to six digits, no trailing zeros."""
    return f"{value:.6g}"


def shortened(numbers: Sequence[int]) -> str:
    """A list of numbers, the middle of a long one left out: ``0 4``, ``0 4 … 28``."""
    shown = [str(value) for value in numbers]
    return " ".join(shown if len(shown) <= _MOST_NUMBERS else [*shown[:2], "…", shown[-1]])


def wrap(items: Iterable[str], columns: int, separator: str = SEPARATOR) -> list[str]:
    """The items joined into as few lines as fit; an item is never broken."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(separator) + len(item) <= columns:
            lines[-1] += separator + item
        else:
            lines.append(item)
    return lines


def _peaks(peaks: tuple[float, ...]) -> str:
    if len(peaks) <= _MOST_PEAKS:
        return f"{' '.join(map(number, peaks))} (by rank)"
    least, most = number(min(peaks)), number(max(peaks))
    return f"{most} on every rank" if least == most else f"{least} to {most} a rank"
