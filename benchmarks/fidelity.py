"""How close a step comes to what is predicted: stages that sleep, and a prediction from a measured profile.

First table: 1F1B with stages that sleep 20 ms forward and 40 ms backward, so cores do not matter. `span` is the time
from the first start of an operation to the last end, measured on the ranks; beside it the ideal, and the simulation
replayed with the durations that were measured. `step` is what the driver sees: with several steps in a call, the call's
time by their number. For PyTorch, under torchrun with gloo, it is what passes between two barriers. Optimizers step in
all of them.

Second table: transformer blocks on two ranks, one thread each; the simulation with what operations took in every other
step against the median of the steps between. It needs two idle cores.

    python benchmarks/fidelity.py                     # both tables, about 2 minutes
    python benchmarks/fidelity.py --size 4x8 --steps 3
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
from pathlib import Path

import ray
import torch
from rich.console import Console
from rich.table import Table
from sleep_model import BACKWARD, FORWARD, Sleeper, sgd
from split_backward import Block
from torch import nn

import piper_dsl as piper
from piper_dsl.ir.operations import Kind
from piper_dsl.runtime.measure import StepReport, measured_costs

NICENESS = "RAY_worker_niceness"
"""Ray gives way to other processes, torchrun does not; here both are to compete alike."""
HERE = Path(__file__).parent
TARGETS = ("ray-program", "ray-dag")
PER_CALL = 5
"""Steps of a call, where there are several."""
SYSTEMS = {"ray-program": ("ray-program", 1), "ray-program x5": ("ray-program", PER_CALL), "ray-dag": ("ray-dag", 1)}
"""Target and steps of a call, by name."""
WARM_UP = PER_CALL
WIDTH = 256


@dataclass(frozen=True)
class Fidelity:
    """Medians over steps, in seconds; ``replayed`` is None where nobody knows what every operation took."""

    span: float
    step: float
    replayed: float | None = None


def pytorch(ranks: int, microbatches: int, steps: int) -> Fidelity:
    """Schedule1F1B under torchrun."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        worker = [str(HERE / "fidelity_torch.py"), str(microbatches), str(WARM_UP + steps), str(path)]
        subprocess.run([*launch, *worker], check=True, capture_output=True, timeout=300)
        found = json.loads(path.read_text(encoding="utf-8"))[WARM_UP:]
    spans = [max(end for _, end in naps) - min(start for start, _ in naps) for _, naps in found]
    return Fidelity(statistics.median(spans), statistics.median(seconds for seconds, _ in found))


def ours(target: str, per_call: int, ranks: int, microbatches: int, steps: int) -> Fidelity:
    """The same by the library's 1f1b on a target."""
    x = torch.ones(microbatches, 1)
    reports = _reports(target, [Sleeper() for _ in range(ranks)], microbatches, (x, x), steps, per_call)
    return Fidelity(
        statistics.median(map(_span, reports)),
        statistics.median(report.seconds for report in reports),
        statistics.median(report.replayed() for report in reports),
    )


def _span(report: StepReport) -> float:
    """From the first start to the last end, optimizers apart: they step behind the end."""
    times = report.times[report.schedule.kind != Kind.OPT]
    return float(times.max() - times.min())


def _reports(
    target: str,
    stages: Sequence[nn.Module],
    microbatches: int,
    batch: tuple[torch.Tensor, torch.Tensor],
    steps: int,
    per_call: int = 1,
) -> list[StepReport]:
    schedule = piper.load("1f1b", p=len(stages), m=microbatches)
    found: list[StepReport] = []
    with piper.Pipeline(
        stages, schedule, loss_fn=nn.functional.mse_loss, optimizer=sgd, target=target, timeout=120.0
    ) as pipeline:
        for _ in pipeline.train([batch] * (WARM_UP + steps), per_call):
            assert pipeline.last is not None
            found.append(pipeline.last)
    return found[WARM_UP:]


def sleeping(sizes: Sequence[tuple[int, int]], steps: int) -> Table:
    """The first table."""
    table = Table(title=f"1F1B, stages that sleep {FORWARD * 1e3:g} and {BACKWARD * 1e3:g} ms")
    for heading in ("size", "ideal", "system", "span", "of ideal", "of replay", "step", "of ideal"):
        table.add_column(heading, justify="left" if heading == "system" else "right")
    for ranks, microbatches in sizes:
        schedule = piper.load("1f1b", p=ranks, m=microbatches)
        ideal = piper.simulate(schedule, piper.Costs(F=FORWARD, B=BACKWARD, OPT=0.0)).makespan
        runs = {"PyTorch": pytorch(ranks, microbatches, steps)}
        runs |= {name: ours(*system, ranks, microbatches, steps) for name, system in SYSTEMS.items()}
        for name, run in runs.items():
            replay = "" if run.replayed is None else f"{run.span / run.replayed:.3f}"
            figures = (
                f"{run.span:.3f}",
                f"{run.span / ideal:.3f}",
                replay,
                f"{run.step:.3f}",
                f"{run.step / ideal:.3f}",
            )
            table.add_row(f"{ranks}x{microbatches}", f"{ideal:.3f}", name, *figures)
    return table


def predicting(steps: int) -> Table:
    """The second table."""
    table = Table(title=f"1F1B, 2 ranks, 8 microbatches, 2 blocks of width {WIDTH} each")
    for heading in ("target", "predicted, ms", "measured, ms", "ratio"):
        table.add_column(heading, justify="left" if heading == "target" else "right")
    torch.manual_seed(0)
    stages = [nn.Sequential(Block(WIDTH, 4), Block(WIDTH, 4)) for _ in range(2)]
    x = torch.randn(16, 64, WIDTH)
    for target in TARGETS:
        reports = _reports(target, stages, 8, (x, x), 2 * steps)
        profile, rest = reports[0::2], reports[1::2]
        predicted = piper.simulate(profile[0].schedule, measured_costs(profile)).makespan
        measured = statistics.median(report.makespan for report in rest)
        table.add_row(target, f"{predicted * 1e3:.1f}", f"{measured * 1e3:.1f}", f"{measured / predicted:.3f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", action="append", help="ranks x microbatches; may be given several times")
    parser.add_argument("--steps", type=int, default=5, help="steps of a run")
    chosen = parser.parse_args()
    sizes = [(int(p), int(m)) for p, m in (size.split("x") for size in chosen.size or ("4x8", "8x16"))]
    os.environ[NICENESS] = "0"
    ray.init(address="local", num_cpus=max(ranks for ranks, _ in sizes), include_dashboard=False, log_to_driver=False)
    tables = (sleeping(sizes, chosen.steps), predicting(2 * chosen.steps))
    ray.shutdown()
    for table in tables:
        Console(width=100).print(table)


if __name__ == "__main__":
    main()
