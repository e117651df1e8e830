"""The words around a picture: what was drawn and what came out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..simulate.timeline import Timeline

__all__ = ["NOTHING_LASTS", "SEPARATOR", "facts", "number", "shortened", "title", "wrap"]

SEPARATOR = " · "
NOTHING_LASTS = "nothing here takes time"
_MOST_PEAKS = 16
_MOST_STAGES = 4
_SAID_ANYWAY = frozenset({"p", "m"})


def title(timeline: Timeline) -> str:
    """Name, ranks, microbatches and the other parameters: ``1F1B  p=4 m=8``."""
    schedule = timeline.schedule
    others = [f" {name}={value}" for name, value in schedule.parameters.items() if name not in _SAID_ANYWAY]
    return f"{schedule.name}  p={schedule.ranks} m={schedule.microbatches}{''.join(others)}"


def facts(timeline: Timeline) -> tuple[str, ...]:
    """Makespan, both bubbles and the peak activations."""
    bubble = timeline.bubble
    return (
        f"makespan {number(timeline.makespan)}",
        f"bubble {bubble.idle:.1%} of makespan, {bubble.span:.1%} of span",
        f"peak activations {_peaks(timeline.peak_activations)}",
    )


def number(value: float) -> str:
    """A time as a reader wants it: up to six digits, no trailing zeros."""
    return f"{value:.6g}"


def shortened(numbers: Sequence[int]) -> str:
    """A list of numbers, the middle of a long one left out: ``0 4``, ``0 4 … 28``."""
    shown = [str(value) for value in numbers]
    return " ".join(shown if len(shown) <= _MOST_STAGES else [*shown[:2], "…", shown[-1]])


def wrap(items: Iterable[str], columns: int, separator: str = SEPARATOR) -> list[str]:
    """The items joined into as few lines as fit; an item is never broken."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(separator) + len(item) <= columns:
            lines[-1] += separator + item
        else:
            lines.append(item)
    return lines


def _peaks(peaks: tuple[int, ...]) -> str:
    if len(peaks) <= _MOST_PEAKS:
        return f"{' '.join(map(str, peaks))} (by rank)"
    return f"{min(peaks)} to {max(peaks)} a rank"
