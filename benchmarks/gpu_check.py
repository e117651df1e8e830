"""Does everything that computes give on a GPU what it gives in one process, and what does it cost there?

Needs torch, numpy, lark and this package; not Ray. Under 3 minutes on one GPU. With two it also runs the ranks'
interpreter over NCCL, with a communicator for every directed pair of ranks. What a machine cannot run is said to be
skipped. The exit status is 1 where something differs.

    python benchmarks/gpu_check.py                  # on the GPUs of this machine
    python benchmarks/gpu_check.py --device cpu     # the script itself, on any machine
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
import time
from collections.abc import Sequence

import gpu_check_parts as parts
import torch
from gpu_check_ranks import run_ranks
from torch import nn

import piper_dsl as piper
from piper_dsl.library import library_names
from piper_dsl.runtime.halves import Again, Apart
from piper_dsl.runtime.measure import StepReport

TOLERANCE = 1e-5
"""Of losses and gradients in float64: far above rounding."""


class Checks:
    """Prints a line for every check as it ends, and counts what failed."""

    def __init__(self) -> None:
        self.failed = 0

    def expect(self, name: str, good: bool, figure: str) -> None:
        self.failed += not good
        print(f"{'ok     ' if good else 'FAILED '} {name}: {figure}", flush=True)

    def tell(self, name: str, figure: str) -> None:
        print(f"figure  {name}: {figure}", flush=True)

    def skip(self, name: str, why: str) -> None:
        print(f"skipped {name}: {why}", flush=True)


def library_on_local(checks: Checks, device: str) -> None:
    """Every library schedule, all ranks in this process on one device."""
    for name in library_names():
        schedule = parts.small(name)
        stages, batch = parts.model(schedule.stages), parts.batch(schedule.microbatches)
        if not parts.trains(schedule):
            checks.expect(f"local {name}", *_evaluated(schedule, stages, batch, device))
            continue
        report, gradients = parts.on_local(schedule, stages, batch, device)
        checks.expect(f"local {name}", *_agrees(stages, batch, report, gradients, device))


def _agrees(
    stages: Sequence[nn.Module], batch: parts.Data, report: StepReport, gradients: parts.ByStage, device: str
) -> tuple[bool, str]:
    loss, wanted = parts.whole(stages, batch, device)
    worst = max(abs(report.loss - loss) / abs(loss), parts.largest_difference(gradients, wanted))
    ordered = bool((report.times[:, 0] <= report.times[:, 1]).all())
    return worst < TOLERANCE and ordered, f"losses and gradients within {worst:.1e}, {len(report.schedule)} operations"


def _evaluated(
    schedule: piper.Schedule, stages: Sequence[nn.Module], batch: parts.Data, device: str
) -> tuple[bool, str]:
    report, _ = parts.on_local(schedule, stages, batch, device)
    loss, _ = parts.whole(stages, batch, device)
    worst = abs(report.loss - loss) / abs(loss)
    return worst < TOLERANCE, f"losses within {worst:.1e}"


def interpreter(checks: Checks, device: str) -> None:
    """The ranks' interpreter: one rank with several stages; with two GPUs, or on CPUs, two ranks and their wire."""
    _interpreted(checks, [parts.written(text) for text in parts.ONE_RANK], device)
    if device == "cuda" and torch.cuda.device_count() < 2:
        checks.skip("two ranks over NCCL", "there is one GPU, and NCCL wants one for every rank")
        return
    _interpreted(checks, [parts.small(name) for name in library_names() if name != "forward_only"], device)


def _interpreted(checks: Checks, schedules: Sequence[piper.Schedule], device: str) -> None:
    several = device == "cuda" and schedules[0].ranks > 1
    for transport in ("direction", "pair") if several else ("buffered",):
        _over(checks, schedules, device, transport)


def _over(checks: Checks, schedules: Sequence[piper.Schedule], device: str, transport: str) -> None:
    wire = f"NCCL, {transport}" if device == "cuda" else "shared memory"
    found = run_ranks(schedules, device, 2, transport)
    for schedule, (report, gradients) in zip(schedules, found, strict=True):
        # Gradients of both steps add up, and both are alike.
        halved = {s: {k: v / 2 for k, v in one.items()} for s, one in gradients.items()}
        name = f"interpreter {schedule.name}, {schedule.ranks} rank{'s' * (schedule.ranks > 1)}, {wire}"
        stages, batch = parts.model(schedule.stages), parts.batch(schedule.microbatches)
        checks.expect(name, *_agrees(stages, batch, report, halved, device))


def overhead(checks: Checks, device: str) -> None:
    """What an operation costs beyond the module: a step of small stages beside the same work in a loop."""
    schedule, count = piper.load("1f1b", p=1, m=64), 2 * 64
    stages, batch = parts.model(1), parts.batch(64)
    times = [parts.on_local(schedule, stages, batch, device, steps=3)[0] for _ in range(3)]
    step = min(float(report.times.max()) for report in times)
    there, data = copy.deepcopy(stages[0]).to(device), (batch[0].to(device), batch[1].to(device))
    loop = min(parts.timed(lambda: parts.loop(there, data, 64), device) for _ in range(6))
    each, bare = step / count * 1e6, loop / count * 1e6
    checks.tell("an operation", f"{each:.0f} us by the runtime's clock, {bare:.0f} us in a bare loop")


def memory(checks: Checks, device: str) -> None:
    """What is held after every operation against the predicted curve; bytes on a GPU, microbatches on a CPU."""
    for text in parts.CURVES:
        schedule = parts.written(text)
        worst, peak, unit = parts.memory_by_operation(schedule, device)
        figure = f"within {worst:.1%} of the largest, which is {peak:.1f} {unit}"
        checks.expect(f"memory by operation, {schedule.name}", worst < 0.05, figure)


def recompute(checks: Checks, device: str) -> None:
    """R gives the same gradients, and a stage holds less between F and R."""
    found = {}
    for name, back in (("kept", "B[i]"), ("recomputed", "R[i] B[i]")):
        schedule = parts.written(f"ranks 1\nmicrobatches 8\nrank 0 {{ F[0:8] for i in 0:8 {{ {back} }} }}")
        stages, batch = parts.model(1, width=parts.WIDE), parts.batch(8, width=parts.WIDE, samples=parts.MANY)
        before = parts.reset_peak(device)
        _, gradients = parts.on_local(schedule, stages, batch, device)
        found[name] = (parts.peak(device) - before, gradients)
    worst = parts.largest_difference(found["recomputed"][1], found["kept"][1])
    checks.expect("recompute, gradients", worst < TOLERANCE, f"within {worst:.1e}")
    if device == "cpu":
        checks.skip("recompute, memory", "torch does not count a CPU's memory")
        return
    ratio = found["recomputed"][0] / found["kept"][0]
    checks.expect("recompute, memory", ratio < 0.8, f"peak {ratio:.2f} of the one without")


def split(checks: Checks, device: str) -> None:
    """I and W against B: the same gradients, and what they cost."""
    module = parts.Block(parts.LARGE if device == "cuda" else 64).to(device)
    shape = (8, 512, parts.LARGE) if device == "cuda" else (2, 16, 64)
    x = torch.randn(shape, device=device)
    seconds = {}
    wanted: list[torch.Tensor] = []
    for way in (None, Apart, Again):
        for _ in range(4):
            took, gradients = parts.backward(module, x, way, device)
            seconds[way] = min(seconds.get(way, math.inf), took)
        if way is None:
            wanted = gradients
            continue
        pairs = zip(gradients, wanted, strict=True)
        worst = max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-9)) for a, b in pairs)
        ratio = seconds[way] / seconds[None]
        checks.expect(f"I and W, {way.__name__.lower()}", worst < 1e-3, f"within {worst:.1e}, {ratio:.2f} of B's time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    device = parser.parse_args().device
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch finds no GPU; --device cpu runs what can be run without one")
    started = time.monotonic()
    found = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if device == "cuda" else ["CPU"]
    print(f"piper-dsl {piper.__version__}, torch {torch.__version__}, {', '.join(found)}", flush=True)
    checks = Checks()
    for check in (library_on_local, interpreter, overhead, memory, recompute, split):
        check(checks, device)
    print(f"{checks.failed} failed, in {time.monotonic() - started:.0f} s")
    sys.exit(checks.failed > 0)


if __name__ == "__main__":
    main()
