"""Processes as /proc shows them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path


def descendants(pid: int) -> set[int]:
    """The children of a process, their children, and so on; zombies are none."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (found := _state_and_parent(int(entry.name))) and found[0] != "Z":
            children.setdefault(found[1], []).append(int(entry.name))
    family: set[int] = set()
    waiting = [pid]
    while waiting:
        own = children.get(waiting.pop(), [])
        family.update(own)
        waiting.extend(own)
    return family


def parent(pid: int) -> int | None:
    """The process that started another; None if that is gone."""
    found = _state_and_parent(pid)
    return found and found[1]


def alive(pids: Iterable[int]) -> set[int]:
    """Those of the processes that still run."""
    return {pid for pid in pids if (found := _state_and_parent(pid)) and found[0] not in "ZX"}


def title(pid: int) -> str:
    """What a process is called; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


_TITLES = ("ray::_RankActor", "ray::_ProgramActor")


def rank_processes() -> set[int]:
    """The actors of the Ray instance that this process started, which hold ranks."""
    return {pid for pid in descendants(os.getpid()) if title(pid).startswith(_TITLES)}


def eventually(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition comes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _state_and_parent(pid: int) -> tuple[str, int] | None:
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return state, int(parent)
