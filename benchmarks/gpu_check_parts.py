"""What `gpu_check.py` runs: small models, ranks in this process, and the same in one piece."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import nn

import piper_dsl as piper
from piper_dsl.diagnostics import Source
from piper_dsl.expand import expand
from piper_dsl.ir.operations import BACKWARD
from piper_dsl.lower import lower
from piper_dsl.lower.program import Code
from piper_dsl.runtime.batch import split_batch
from piper_dsl.runtime.halves import Halves
from piper_dsl.runtime.launch import rank_specs
from piper_dsl.runtime.measure import StepReport
from piper_dsl.runtime.rank import Rank
from piper_dsl.runtime.settings import Settings
from piper_dsl.runtime.shared import shared_places, sum_shared
from piper_dsl.runtime.spec import Batch, RankSpec
from piper_dsl.syntax import parse
from piper_dsl.targets.local import LocalTarget

Data = tuple[torch.Tensor, torch.Tensor]
ByStage = Mapping[int, Mapping[str, torch.Tensor]]

WIDTH = 32
SAMPLES = 4
"""Per microbatch."""
WIDE, MANY = 256, 256
"""Width and samples where memory is looked at: a microbatch's activations are larger than the parameters."""
LARGE = 2048
"""Width of the block whose backward is timed on a GPU."""
loss_fn = nn.functional.mse_loss

_LOOP = "ranks 1\nstages 3\nmicrobatches 4\nplace s on 0\nrank 0 {{ F[0:4]@0 F[0:4]@1 F[0:4]@2 {} }}"
ONE_RANK = (
    "name loop\n" + _LOOP.format("B[0:4]@2 B[0:4]@1 B[0:4]@0"),
    "name split\n" + _LOOP.format("I[0:4]@2 I[0:4]@1 I[0:4]@0 W[0:4]@0 W[0:4]@1 W[0:4]@2"),
    "name recomputed\n" + _LOOP.format("B[0:4]@2 R[0:4]@1 B[0:4]@1 R[0:4]@0 I[0:4]@0 W[0:4]@0"),
)
CURVES = (
    "name all\nranks 1\nmicrobatches 8\nrank 0: F[0:8] B[0:8]",
    "name alternating\nranks 1\nmicrobatches 8\nrank 0 { F[0:3] for i in 0:5 { B[i] F[i+3] } B[5:8] }",
)


class Block(nn.Module):
    """Layers of a transformer block without attention; input and output of shape (…, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's output."""
        return x + self.layers(self.norm(x))


def model(stages: int, width: int = WIDTH) -> list[nn.Module]:
    """One block a stage, float64."""
    torch.manual_seed(0)
    return [Block(width).double() for _ in range(stages)]


def batch(microbatches: int, width: int = WIDTH, samples: int = SAMPLES) -> Data:
    """Inputs and targets of one step."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(2, samples * microbatches, width, generator=generator, dtype=torch.float64)
    return x, y


def written(text: str) -> piper.Schedule:
    """The schedule of a text."""
    name, _, rest = text.partition("\n") if text.startswith("name ") else ("name written", "", text)
    return replace(expand(parse(Source("gpu_check.pipe", rest))), name=name.removeprefix("name "))


def small(name: str) -> piper.Schedule:
    """A library schedule of two ranks and eight microbatches."""
    return piper.load(name, p=2, m=8)


def trains(schedule: piper.Schedule) -> bool:
    """Whether it has backwards."""
    return bool(np.isin(schedule.kind, [int(kind) for kind in BACKWARD]).any())


def specs_of(schedule: piper.Schedule, stages: Sequence[nn.Module], device: str) -> list[RankSpec]:
    """What the ranks are sent; nothing is stepped, so gradients stay to be compared."""
    specs = rank_specs(stages, schedule, lower(schedule), loss_fn, None, Settings())
    return [replace(spec, device=device, steps=False, modules=copy.deepcopy(spec.modules)) for spec in specs]


def batches_of(schedule: piper.Schedule, data: Data, step: int = 0) -> list[Batch]:
    """The data of a step by rank."""
    return split_batch(step, *data, schedule.microbatches, schedule.graph, schedule.placement)


def summed(
    schedule: piper.Schedule, stages: Sequence[nn.Module], gradients: Sequence[ByStage]
) -> dict[int, dict[str, torch.Tensor]]:
    """The gradients of all ranks, those of a stage's copies together."""
    return sum_shared(gradients, shared_places(stages, schedule.placement).values())


def on_local(
    schedule: piper.Schedule, stages: Sequence[nn.Module], data: Data, device: str, steps: int = 1
) -> tuple[StepReport, ByStage]:
    """The last of some steps of all ranks in this process, and the gradients of all steps."""
    target = LocalTarget(lower(schedule), specs_of(schedule, stages, device))
    for step in range(steps):
        reports = target.step(batches_of(schedule, data, step))
    return StepReport(schedule, tuple(reports), 0.0), summed(schedule, stages, target.gradients())


def whole(stages: Sequence[nn.Module], data: Data, device: str) -> tuple[float, ByStage]:
    """Loss and gradients of the model in one piece, on the same device."""
    own = [copy.deepcopy(stage).to(device) for stage in stages]
    x, y = (part.to(device) for part in data)
    loss = loss_fn(nn.Sequential(*own)(x), y)
    loss.backward()
    return loss.item(), {s: {k: p.grad.cpu() for k, p in one.named_parameters()} for s, one in enumerate(own)}


def largest_difference(found: ByStage, wanted: ByStage) -> float:
    """Of any gradient, as a part of its largest value."""
    assert {s: sorted(one) for s, one in found.items()} == {s: sorted(one) for s, one in wanted.items()}
    parts = ((found[s][k], gradient) for s, one in wanted.items() for k, gradient in one.items())
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in parts)


def synchronize(device: str) -> None:
    """Waits for the GPU."""
    if device == "cuda":
        torch.cuda.synchronize()


def timed(work: Callable[[], object], device: str) -> float:
    """Seconds that some work takes on a device: between two CUDA events on a GPU."""
    if device == "cpu":
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    work()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1e3


def loop(stage: nn.Module, data: Data, microbatches: int) -> None:
    """The same work without a runtime: forward and backward of one microbatch after the other."""
    for x, y in zip(*(part.chunk(microbatches) for part in data), strict=True):
        (loss_fn(stage(x), y) / microbatches).backward()


def backward(
    module: nn.Module, x: torch.Tensor, way: type[Halves] | None, device: str
) -> tuple[float, list[torch.Tensor]]:
    """Seconds and gradients of a backward, whole or in two halves."""
    module.zero_grad(set_to_none=True)
    leaf = x.detach().requires_grad_()
    output = module(leaf)
    seed = torch.ones_like(output)
    if way is None:
        seconds = timed(lambda: torch.autograd.backward(output, seed), device)
        inputs = [leaf.grad]
    else:
        halves = way((output,), (seed,), (leaf,))
        inputs = []
        seconds = timed(lambda: inputs.extend(halves.inputs()), device)
        seconds += timed(lambda: halves.weights(torch.autograd.backward), device)
    return seconds, [*inputs, *(p.grad.clone() for p in module.parameters())]


# --- memory ------------------------------------------------------------------------------------


def reset_peak(device: str) -> int:
    """Forgets the peak; the bytes held now."""
    if device == "cpu":
        return 0
    synchronize(device)
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def peak(device: str) -> int:
    """The most bytes held since."""
    return torch.cuda.max_memory_allocated() if device == "cuda" else 0


def memory_by_operation(schedule: piper.Schedule, device: str) -> tuple[float, float, str]:
    """Runs a schedule of one rank and looks after every operation: the largest difference to the predicted curve as
    a part of its peak, that peak, and its unit: MiB on a GPU, on a CPU the microbatches that are held.
    """
    rank = Rank(specs_of(schedule, model(1, width=WIDE), device)[0])
    data = batch(schedule.microbatches, width=WIDE, samples=MANY)
    for step in range(2):
        # The first step makes what stays: gradients, and what libraries set aside.
        rank.load(batches_of(schedule, data, step)[0])
        found = _watched(rank, schedule, device)
        rank.updates.keep()
    base, unit = (found[-1], found[0] - found[-1]) if device == "cuda" else (0.0, 1.0)
    predicted = unit * _predicted(schedule)
    most, (scale, name) = predicted.max(), (2.0**20, "MiB") if device == "cuda" else (1.0, "microbatches")
    return float(np.abs(found - base - predicted).max() / most), float(most / scale), name


def _watched(rank: Rank, schedule: piper.Schedule, device: str) -> np.ndarray:
    """What is held after every operation, with the FREE behind it."""
    found: list[float] = []
    for _, instruction in lower(schedule).in_order():
        if instruction.code is Code.FREE and instruction.microbatch is not None:
            rank.free(instruction.stage, instruction.microbatch)
            found.pop()
        else:
            rank.run(instruction.operation)
        found.append(_bytes_held(rank) if device == "cuda" else float(rank.held()))
    return np.array(found)


def _bytes_held(rank: Rank) -> float:
    """All that is allocated but the gradients of parameters, which a step makes anew at its first backward."""
    gradients = sum(gradient.nbytes for one in rank.gradients().values() for gradient in one.values())
    return float(torch.cuda.memory_allocated() - gradients)


def _predicted(schedule: piper.Schedule) -> np.ndarray:
    """Activations held behind every operation."""
    timeline = piper.simulate(schedule)
    times, held = timeline.memory_curve(0)
    return held[np.searchsorted(times, timeline.end, side="right") - 1] - _starting(schedule, timeline)


def _starting(schedule: piper.Schedule, timeline: piper.Timeline) -> np.ndarray:
    """What the curve already counts of an operation that starts where another ends: the activation of a forward."""
    follows = np.append(timeline.start[1:] == timeline.end[:-1], False)
    forward = np.append(schedule.kind[1:] == int(Code.F), False)
    return (follows & forward).astype(float)
