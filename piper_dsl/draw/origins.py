"""The places in a text that operations come from."""

from __future__ import annotations

from ..ir.schedule import Schedule

__all__ = ["origin_lines", "origin_names"]


def origin_names(schedule: Schedule) -> list[str]:
    """Of every site of the schedule's origin, ``file:line:column``."""
    origin = schedule.origin
    positions = (origin.source.position(int(start)) for start in origin.starts)
    return [f"{origin.source.name}:{line}:{column}" for line, column in positions]


def origin_lines(schedule: Schedule) -> list[dict[str, str]]:
    """The same as ``place``, with the text of the ``line``."""
    origin = schedule.origin
    lines = (origin.source.line(origin.source.position(int(start))[0]).strip() for start in origin.starts)
    return [{"place": place, "line": line} for place, line in zip(origin_names(schedule), lines, strict=True)]
