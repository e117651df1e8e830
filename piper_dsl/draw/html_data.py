"""What the viewer of an HTML page reads: columns of one entry an operation, rows, words and colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from math import floor, log10
from typing import Any

import numpy as np

from ..ir.operations import TRANSFERS, Kind
from .boxes import find_chunks, find_parts, kinds_present
from .caption import costs_used, heading, shortened, title
from .differences import Differences, difference_facts, find_differences
from .origins import origin_lines
from .palette import Paint, paint
from .scene import Scene, find_scene
from .theme import Theme
from .transfers import find_messages

__all__ = ["theme_colours", "viewer_data"]

_DIGITS, _FINEST = 10, 300
"""Times have so many digits in all, those of the makespan, and no more places behind the point than this."""
_COLUMNS = ("row", "part", "parts", "start", "end", "kind", "name", "label", "paint", "cause", "site", "transfer")
_LISTS = ("rows", "sites", "heads", "arrows", "critical", "moved", "changed")
_Columns = dict[str, list[Any]]


def theme_colours(theme: Theme) -> dict[str, str]:
    """The colours of a theme that are no kind's."""
    return {field.name: getattr(theme, field.name) for field in fields(theme) if field.name not in ("name", "bands")}


def viewer_data(scenes: Sequence[Scene]) -> dict[str, Any]:
    """A variant of a page. Rows and operations are numbered over all scenes; see the head of the viewer's script."""
    whole = [_all_of_the_time(scene) for scene in scenes]
    view = scenes[0].view
    return {
        "start": 0.0,
        "end": max(scene.end for scene in whole) or 1.0,
        "from": min(scene.start for scene in scenes),
        "to": max(scene.end for scene in scenes) or 1.0,
        "transfers": view.transfers,
        "path": view.critical_path,
        "memory": view.memory,
        "theme": theme_colours(view.theme),
        "kinds": [kind.description for kind in Kind],
        "panels": [_panel(scene, whole[0] if index else None) for index, scene in enumerate(whole)],
        **(joined := _join(whole)),
        "legend": _legend(whole, moved=bool(joined["moved"]), changed=bool(joined["changed"])),
    }


def _all_of_the_time(scene: Scene) -> Scene:
    view = replace(scene.view, start=None, end=None)
    return find_scene(scene.timeline, view, scene.heads, scene.findings)


def _rounded(scene: Scene, times: np.ndarray) -> list[float]:
    """Times with the digits that a page shows, in whatever unit."""
    last = scene.end or 1.0
    rounded: list[float] = np.round(times, min(_FINEST, _DIGITS - 1 - floor(log10(last)))).tolist()
    return rounded


def _legend(scenes: Sequence[Scene], *, moved: bool, changed: bool) -> list[dict[str, str]]:
    """What colours mean: ``fill`` of boxes, ``edge`` around them."""
    kinds = sorted({kind for scene in scenes for kind in kinds_present(scene)})
    theme = scenes[0].view.theme
    fills = [(paint(kind, theme=theme).fill, f"{kind.name} {kind.description}") for kind in kinds]
    entries = [{"fill": fill, "edge": "transparent", "line": "", "said": said} for fill, said in fills]
    entries.append({"fill": theme.lane, "edge": theme.lane_edge, "line": "", "said": "idle"})
    if moved:
        entries.append(
            {
                "fill": "none",
                "edge": theme.alarm,
                "line": theme.moved_line,
                "said": "in another order than in the first",
            }
        )
    if changed:
        entries.append(
            {"fill": "none", "edge": theme.changed, "line": theme.changed_line, "said": "takes another time"}
        )
    return entries


def _panel(scene: Scene, reference: Scene | None) -> dict[str, Any]:
    said = [*(difference_facts(scene, reference) if reference else ()), *heading(scene), *costs_used(scene.timeline)]
    return {"title": title(scene.timeline), "facts": said}


def _join(scenes: Sequence[Scene]) -> dict[str, Any]:
    """The operations, rows and whatever names them, of all scenes."""
    columns: _Columns = {name: [] for name in _COLUMNS}
    joined: _Columns = {name: [] for name in _LISTS}
    paints: dict[Paint, int] = {}
    for panel, scene in enumerate(scenes):
        first, row, site = len(columns["row"]), len(joined["rows"]), len(joined["sites"])
        place = np.full(len(scene.schedule) + 1, -1, dtype=np.int64)  # of an operation in the columns; -1 for none
        place[scene.shown] = first + np.arange(len(scene.shown))
        joined["rows"] += _rows(scene, panel)
        joined["sites"] += origin_lines(scene.schedule)
        joined["heads"] += _heads(scene, row)
        joined["arrows"] += _messages(scene, place)
        joined["critical"] += [index for index in place[list(scene.timeline.critical_indices)].tolist() if index >= 0]
        differences = find_differences(scene, scenes[0]) if panel else Differences()
        joined["moved"] += place[list(differences.moved)].tolist()
        joined["changed"] += place[list(differences.changed)].tolist()
        for name, column in _operations(scene, row, site, place, paints).items():
            columns[name] += column
    looks = [{"fill": look.fill, "ink": look.ink} for look in paints]
    most = max((held for row in joined["rows"] for held in row["held"]), default=0.0) or 1.0
    return {**joined, "operations": columns, "paints": looks, "most": most}


def _operations(scene: Scene, row: int, site: int, place: np.ndarray, paints: dict[Paint, int]) -> _Columns:
    """The columns of a scene; its rows and sites are numbered from ``row`` and ``site`` on."""
    schedule, timeline, shown = scene.schedule, scene.timeline, scene.shown
    chunk, (part, parts) = find_chunks(schedule), find_parts(schedule)
    chunks = int(chunk.max(initial=0)) + 1
    kinds = schedule.kind[shown].tolist()
    looks = [
        paint(Kind(kind), own, chunks, scene.view.theme) for kind, own in zip(kinds, chunk[shown].tolist(), strict=True)
    ]
    operations = [schedule.operation(index) for index in shown.tolist()]
    return {
        "row": [row + scene.row_of[rank] for rank in schedule.rank[shown].tolist()],
        "part": part[shown].tolist(),
        "parts": parts[shown].tolist(),
        "start": _rounded(scene, timeline.start[shown]),
        "end": _rounded(scene, timeline.end[shown]),
        "kind": kinds,
        "name": [str(operation) for operation in operations],
        "label": [op.kind.name if op.microbatch is None else str(op.microbatch) for op in operations],
        "paint": [paints.setdefault(look, len(paints)) for look in looks],
        "cause": place[timeline.causes[shown]].tolist(),
        "site": (site + schedule.origin.site[shown]).tolist(),
        "transfer": np.isin(schedule.kind[shown], TRANSFERS).astype(int).tolist(),
    }


def _messages(scene: Scene, place: np.ndarray) -> list[list[Any]]:
    """Producer, consumer, and the times between which it is on its way, of every message."""
    found, moves = find_messages(scene), scene.timeline.moves
    ends = place[moves.producer[found]], place[moves.consumer[found]]
    times = _rounded(scene, moves.start[found]), _rounded(scene, moves.end[found])
    return [list(row) for row in zip(*(column.tolist() for column in ends), *times, strict=True)]


def _rows(scene: Scene, panel: int) -> list[dict[str, Any]]:
    schedule = scene.schedule
    rows = []
    for rank, row in scene.row_of.items():
        stages = np.unique(schedule.stage[schedule.offsets[rank] : schedule.offsets[rank + 1]]).tolist()
        times, held = scene.timeline.memory_curve(rank)
        rows.append(
            {
                "name": f"rank {rank}",
                "stages": f"stages {shortened(stages)}" if len(stages) > 1 else "",
                "panel": panel,
                "first": row == 0,
                "times": _rounded(scene, times),
                "held": held.tolist(),
            }
        )
    return rows


def _heads(scene: Scene, row: int) -> list[dict[str, Any]]:
    return [
        {
            "row": row + scene.row_of[head.rank],
            "start": head.time,
            "end": head.time + head.duration,
            "label": head.label,
            "said": head.reason,
        }
        for head in scene.heads
    ]
