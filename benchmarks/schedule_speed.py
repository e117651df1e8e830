"""How fast a schedule gets from text to verdict, timeline and program, beside PyTorch doing the same work.

Both make interleaved 1F1B of one size: PyTorch generates, validates, lowers and simulates it with its own
functions; piper-dsl expands the library's text, checks, simulates and lowers it. One process, one run after the
other, best of three for ours. Absolute times are noise; the ratio is the figure.

    python benchmarks/schedule_speed.py                    # p=16 v=4 m=64, quick
    python benchmarks/schedule_speed.py --full             # p=64 v=4 m=512: PyTorch takes about a minute
    python benchmarks/schedule_speed.py --growth           # ours alone, from 10^4 to 2 * 10^6 operations
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

import piper_dsl as piper
from piper_dsl.syntax import parse


def timed(work: Callable[[], Any], repeat: int = 1) -> tuple[float, Any]:
    """The best of some runs, in seconds, and the last result."""
    best, result = math.inf, None
    for _ in range(repeat):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def ours(p: int, v: int, m: int, repeat: int = 3) -> dict[str, float]:
    """Seconds by step; every repetition starts from text, so nothing is remembered between them."""
    best: dict[str, float] = {}
    for _ in range(repeat):
        load, schedule = timed(lambda: piper.load("interleaved_1f1b", p=p, v=v, m=m))
        check, findings = timed(lambda schedule=schedule: piper.check(schedule))
        assert findings == ()
        simulate, _ = timed(lambda schedule=schedule: piper.simulate(schedule).makespan)
        lower, _ = timed(lambda schedule=schedule: piper.lower(schedule))
        for name, seconds in (("generate", load), ("check", check), ("simulate", simulate), ("lower", lower)):
            best[name] = min(best.get(name, math.inf), seconds)
    return best


def pytorch(p: int, v: int, m: int) -> dict[str, float]:
    """Seconds by step, with PyTorch's own functions."""
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops
    from torch.distributed.pipelining.schedules import (
        _add_send_recv,
        _simulate_comms_compute,
        _validate_schedule,
    )

    stages = p * v
    generate, rows = timed(lambda: get_schedule_ops("Interleaved1F1B", p, m, v))
    actions = {rank: [action for action in row if action is not None] for rank, row in enumerate(rows)}
    check, _ = timed(lambda: _validate_schedule(actions, p, stages, m))
    owner = {stage: stage % p for stage in range(stages)}
    copies = {rank: list(row) for rank, row in actions.items()}
    lower, lowered = timed(lambda: _add_send_recv(copies, owner.__getitem__, stages))
    simulate, _ = timed(lambda: _simulate_comms_compute(lowered, owner.__getitem__, stages))
    return {"generate": generate, "check": check, "simulate": simulate, "lower": lower}


def compare(p: int, v: int, m: int) -> None:
    mine, theirs = ours(p, v, m), pytorch(p, v, m)
    table = Table(title=f"interleaved 1F1B, p={p} v={v} m={m}: {2 * p * v * m:,} operations")
    for heading in ("step", "piper-dsl, s", "PyTorch, s", "ratio"):
        table.add_column(heading, justify="left" if heading == "step" else "right")
    for step in mine:
        table.add_row(step, f"{mine[step]:.3f}", f"{theirs[step]:.3f}", f"{theirs[step] / mine[step]:.0f}")
    total, their_total = sum(mine.values()), sum(theirs.values())
    table.add_row("all", f"{total:.3f}", f"{their_total:.3f}", f"{their_total / total:.0f}", style="bold")
    Console().print(table)
    written_out(p, v, m)
    cold_start()


def written_out(p: int, v: int, m: int) -> None:
    """The same operations written one by one, from text to tree."""
    schedule = piper.load("interleaved_1f1b", p=p, v=v, m=m)
    rows = [" ".join(map(str, schedule.row(rank))) for rank in range(p)]
    bodies = "".join(f"rank {rank}: {row}\n" for rank, row in enumerate(rows))
    source = piper.Source("written.pipe", f"ranks {p}\nmicrobatches {m}\nstages {p * v}\n{bodies}")
    seconds, _ = timed(lambda: parse(source), repeat=3)
    rate = len(schedule) / seconds / 1e6
    Console().print(f"written out, {len(schedule):,} operations parse in {seconds:.3f} s: {rate:.2f} million a second")


def cold_start() -> None:
    """A small check as a process of its own, from compiled modules, as installers leave them."""
    command = [sys.executable, "-m", "piper_dsl", "check", "1f1b"]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as compiled:
        environment = {**kept, "PYTHONPYCACHEPREFIX": compiled}
        subprocess.run(command, check=True, capture_output=True, env=environment)
        seconds, _ = timed(lambda: subprocess.run(command, check=True, capture_output=True, env=environment), repeat=5)
    Console().print(f"piper-dsl check 1f1b, from a cold start: {seconds:.2f} s")


def bytes_held(p: int, m: int) -> tuple[int, int, int]:
    """What a schedule holds when loaded, and with all that a check remembers; what a program holds."""
    tracemalloc.start()
    schedule = piper.load("interleaved_1f1b", p=p, v=4, m=m)
    loaded, _ = tracemalloc.get_traced_memory()
    piper.check(schedule)
    checked, _ = tracemalloc.get_traced_memory()
    program = piper.lower(schedule)
    with_program, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(program) > len(schedule)
    return loaded, checked, with_program - checked


def growth() -> None:
    """Time and memory per operation over sizes, and the exponent of the growth."""
    table = Table(title="growth, interleaved 1F1B, v=4")
    for heading in ("operations", "seconds", "µs per operation", "bytes: schedule", "checked", "program"):
        table.add_column(heading, justify="right")
    points = []
    for p, m in ((16, 80), (32, 128), (64, 512), (64, 1024), (128, 2048)):
        count = 2 * p * 4 * m
        seconds = sum(ours(p, 4, m, repeat=1).values())
        points.append((math.log(count), math.log(seconds)))
        held = (f"{size / count:.0f}" for size in bytes_held(p, m))
        table.add_row(f"{count:,}", f"{seconds:.3f}", f"{seconds / count * 1e6:.2f}", *held)
    (x0, y0), (x1, y1) = points[0], points[-1]
    Console().print(table)
    Console().print(
        f"exponent from {points[0][0]:.1f} to {points[-1][0]:.1f} (ln operations): {(y1 - y0) / (x1 - x0):.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the size of the stated figure")
    parser.add_argument("--growth", action="store_true", help="ours over sizes")
    arguments = parser.parse_args()
    if arguments.growth:
        growth()
    else:
        compare(*((64, 4, 512) if arguments.full else (16, 4, 64)))


if __name__ == "__main__":
    main()
