"""How long a training step takes on both Ray targets, beside torch.distributed.pipelining on the same machine.

All train the same model by 1F1B, one thread a rank, one system after the other, in some rounds. PyTorch's ranks run
under torchrun over gloo, without a driver and with all data at hand: a step of theirs is timed between two barriers.
One of ours is timed from the driver's call to its result, losses included, and data too, unless the ranks load it; with
several steps in a call, it is the call's time by their number. Medians over all rounds; absolute times are noise, the
ratio to PyTorch is the figure. All must end at the same loss.

    python benchmarks/step_time.py                       # 4x16, 4x64, 8x32, as ranks x microbatches
    python benchmarks/step_time.py --size 4x16 --rounds 1 --system "ray-program x5"
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import ray
import step_model
from rich.console import Console
from rich.table import Table

import piper_dsl as piper

HERE = Path(__file__).parent
NICENESS = "RAY_worker_niceness"
"""Ray gives way to other processes, torchrun does not; here both are to compete alike."""
WARM_UP = 5
"""Steps that are not counted."""
PER_CALL = 5
"""Steps of a call, where there are several."""


@dataclass(frozen=True)
class System:
    """A target, how many steps it makes in a call, and whether its ranks load the data by themselves."""

    target: str
    per_call: int = 1
    loads: bool = False


SYSTEMS = {
    "ray-program": System("ray-program"),
    "ray-program, loading": System("ray-program", loads=True),
    "ray-program x5": System("ray-program", PER_CALL),
    "ray-program x5, loading": System("ray-program", PER_CALL, loads=True),
    "ray-dag": System("ray-dag"),
    "ray-dag, loading": System("ray-dag", loads=True),
}


@dataclass(frozen=True)
class Run:
    """Seconds of the steps of one run, and the loss of the last."""

    seconds: list[float]
    loss: float


def pytorch(ranks: int, microbatches: int, steps: int) -> Run:
    """A run under torchrun."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        worker = [str(HERE / "step_torch.py"), str(microbatches), str(steps), str(path)]
        subprocess.run([*launch, *worker], check=True, capture_output=True, timeout=600)
        found = json.loads(path.read_text(encoding="utf-8"))
    return Run(found["seconds"][WARM_UP:], found["loss"])


def ours(system: System, ranks: int, microbatches: int, steps: int) -> Run:
    """A run on a target."""
    loader = partial(step_model.batches, microbatches, steps)
    schedule = piper.load("1f1b", p=ranks, m=microbatches)
    arguments = {"loss_fn": step_model.loss, "optimizer": step_model.optimizer, "timeout": 600.0, "loader": loader}
    with piper.Pipeline(step_model.stages(ranks), schedule, target=system.target, **arguments) as pipeline:
        per_call = system.per_call
        losses = pipeline.train_loaded(steps, per_call) if system.loads else pipeline.train(loader(), per_call)
        reports = [pipeline.last for _ in losses]
    return Run([report.seconds for report in reports[WARM_UP:]], reports[-1].loss)


def measure(systems: Sequence[str], ranks: int, microbatches: int, steps: int, rounds: int) -> dict[str, float]:
    """The median seconds of a step by system."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        runs = {"torch.distributed.pipelining": pytorch(ranks, microbatches, steps)}
        runs |= {name: ours(SYSTEMS[name], ranks, microbatches, steps) for name in systems}
        wanted = runs["torch.distributed.pipelining"].loss
        for name, run in runs.items():
            assert abs(run.loss - wanted) < 1e-4 * abs(wanted), (name, run.loss, wanted)
            found.setdefault(name, []).extend(run.seconds)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", action="append", help="ranks x microbatches; may be given several times")
    parser.add_argument("--steps", type=int, default=20, help="steps of a run")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--system", action="append", choices=SYSTEMS, help="beside PyTorch; all of them if none is given"
    )
    chosen = parser.parse_args()
    table = Table(title="a training step by 1F1B")
    for heading in ("ranks x microbatches", "system", "ms a step", "us an operation", "ratio"):
        table.add_column(heading, justify="left" if heading == "system" else "right")
    sizes = [tuple(map(int, size.split("x"))) for size in chosen.size or ("4x16", "4x64", "8x32")]
    os.environ[NICENESS] = "0"
    most = max(ranks for ranks, _ in sizes)
    ray.init(address="local", num_cpus=most, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    for ranks, microbatches in sizes:
        medians = measure(chosen.system or list(SYSTEMS), ranks, microbatches, chosen.steps + WARM_UP, chosen.rounds)
        for name, seconds in medians.items():
            operations = 2 * ranks * microbatches
            ratio = seconds / medians["torch.distributed.pipelining"]
            each = (f"{seconds * 1e3:.1f}", f"{seconds / operations * 1e6:.0f}", f"{ratio:.2f}")
            table.add_row(f"{ranks}x{microbatches}", name, *each)
    ray.shutdown()
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
