"""piper-dsl run: train a model by a schedule."""

from __future__ import annotations

import importlib.util
import os
import sys
from enum import Enum
from typing import Annotated

import typer

from ..diagnostics import Diagnostic, PipeError
from ..expand import DEFAULT_MAX_OPS
from ..simulate import TIMELINE_SUFFIX
from .common import File, Format, FormatOption, MaxOps, Parameters, checked, errors

__all__ = ["run"]


class RunTarget(str, Enum):
    """What runs the schedule."""

    AUTO = "auto"
    LOCAL = "local"
    RAY_DAG = "ray-dag"
    RAY_PROGRAM = "ray-program"


class LossReduction(str, Enum):
    """What a loss is over samples."""

    MEAN = "mean"
    SUM = "sum"


class Strategy(str, Enum):
    """How ranks are laid over the nodes of a cluster."""

    PACK = "pack"
    SPREAD = "spread"
    STRICT_PACK = "strict-pack"
    STRICT_SPREAD = "strict-spread"


class AutocastType(str, Enum):
    """What torch.autocast computes in."""

    BFLOAT16 = "bfloat16"


class RunTransport(str, Enum):
    """How tensors go between ranks."""

    AUTO = "auto"
    ACCELERATOR = "accelerator"
    SHARED_MEMORY = "shared-memory"
    GLOO = "gloo"


Model = Annotated[
    str,
    typer.Option(
        "--model", metavar="MODULE:FUNCTION", help="Makes the stages, a list of torch modules; or one, with --split."
    ),
]
Split = Annotated[
    str | None,
    typer.Option(
        "--split",
        metavar="HOW",
        help="Cut one module into the stages: time, parameters, marks, or names of layers with commas between.",
    ),
]
Data = Annotated[
    str, typer.Option("--data", metavar="MODULE:FUNCTION", help="Makes batches: an iterable of (inputs, targets).")
]
Loss = Annotated[str, typer.Option("--loss", metavar="MODULE:FUNCTION", help="The loss of (outputs, targets).")]
Steps = Annotated[int, typer.Option("--steps", min=1, help="Steps, each of one batch.")]
Target = Annotated[RunTarget, typer.Option("--target", help="What runs the schedule.")]
Address = Annotated[
    str | None,
    typer.Option("--address", metavar="HOST:PORT", help="Join this Ray cluster instead of starting Ray; or auto."),
]
Cpus = Annotated[float, typer.Option("--num-cpus", min=0.01, metavar="X", help="CPUs of Ray that each rank holds.")]
Gpus = Annotated[
    int | None,
    typer.Option("--num-gpus", min=0, metavar="N", help="GPUs of each rank (default: one if there are enough)."),
]
Nodes = Annotated[Strategy, typer.Option("--strategy", help="How ranks are laid over the nodes of a cluster.")]
Replicas = Annotated[
    int, typer.Option("--replicas", min=1, metavar="D", help="Pipelines side by side, each with a part of the batch.")
]
BatchSize = Annotated[int, typer.Option("--batch", min=1, help="Samples per step, over all microbatches and replicas.")]
Optimizer = Annotated[
    str, typer.Option("--optimizer", metavar="NAME", help="A class of torch.optim, or MODULE:FUNCTION of parameters.")
]
LearningRate = Annotated[float, typer.Option("--lr", min=0.0, help="Learning rate of an optimizer of torch.optim.")]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler", metavar="NAME", help="Of the learning rate: cosine, linear, or MODULE:FUNCTION of an optimizer."
    ),
]
MaxNorm = Annotated[
    float | None,
    typer.Option("--max-norm", metavar="X", help="Clip the gradients to this norm, taken over all stages."),
]
Accumulate = Annotated[
    int, typer.Option("--accumulate", min=1, metavar="K", help="Step the optimizers once every K steps.")
]
Reduction = Annotated[
    LossReduction, typer.Option("--reduction", help="Whether --loss is the mean or the sum over samples.")
]
Autocast = Annotated[
    AutocastType | None, typer.Option("--autocast", help="Run forwards and losses under torch.autocast.")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of weights, data, and random numbers of stages.")]
Compare = Annotated[
    bool, typer.Option("--compare", help="Train the same model in one process too and report the difference.")
]
Transport = Annotated[RunTransport, typer.Option("--transport", help="How target ray-dag moves tensors.")]
Checkpoints = Annotated[
    str | None, typer.Option("--checkpoints", metavar="FOLDER", help="Where checkpoints are written and taken up.")
]
CheckpointEvery = Annotated[
    int, typer.Option("--checkpoint-every", min=1, metavar="STEPS", help="How often one is written.")
]
MaxRestarts = Annotated[
    int, typer.Option("--max-restarts", min=0, metavar="N", help="Go on from a checkpoint where a rank died.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint, if there is one.")]
Timeout = Annotated[
    float | None, typer.Option("--timeout", min=0.1, help="Seconds a step may take (default: from past steps).")
]
Profile = Annotated[
    str | None, typer.Option("--profile", metavar="FILE", help="Write measured costs, for simulate --costs.")
]
TimelineFile = Annotated[
    str | None,
    typer.Option(
        "--timeline", metavar="FILE.json", help="Write when a measured step ran what, for visualize and compare."
    ),
]


def run(
    file: File,
    model: Model = "piper_dsl.demo.gpt:stages",
    split: Split = None,
    data: Data = "piper_dsl.demo.text:batches",
    loss: Loss = "piper_dsl.demo.gpt:next_byte_loss",
    steps: Steps = 30,
    target: Target = RunTarget.RAY_DAG,
    address: Address = None,
    num_cpus: Cpus = 1.0,
    num_gpus: Gpus = None,
    strategy: Nodes = Strategy.PACK,
    replicas: Replicas = 1,
    batch: BatchSize = 16,
    optimizer: Optimizer = "AdamW",
    learning_rate: LearningRate = 3e-3,
    scheduler: Scheduler = None,
    max_norm: MaxNorm = None,
    accumulate: Accumulate = 1,
    reduction: Reduction = LossReduction.MEAN,
    autocast: Autocast = None,
    seed: Seed = 0,
    compare: Compare = False,
    transport: Transport = RunTransport.AUTO,
    timeout: Timeout = None,
    checkpoints: Checkpoints = None,
    checkpoint_every: CheckpointEvery = 100,
    max_restarts: MaxRestarts = 0,
    resume: Resume = False,
    profile: Profile = None,
    timeline: TimelineFile = None,
    param: Parameters = None,
    format: FormatOption = Format.TEXT,
    max_ops: MaxOps = DEFAULT_MAX_OPS,
) -> None:
    """Train a model by a schedule; by default a small GPT on English text.

    The functions that --model and --data name may take one number: how many stages, how many samples.

    Example: piper-dsl run 1f1b -p p=2 -p m=4 --steps 30 --model mine:stages --data mine:batches --loss mine:loss
    """
    _require_suffix(timeline)
    if resume and checkpoints is None:
        raise typer.BadParameter("--resume takes up a checkpoint of the folder that --checkpoints names")
    with errors():
        schedule = checked(file, param, max_ops)
        _require_extra(target)
        from .recipe import Recipe
        from .training import Job, train

        # Modules of the current folder are found, here and by the actors.
        sys.path.insert(0, os.getcwd())
        train(
            Job(
                schedule=schedule,
                model=model,
                split=split,
                data=data,
                loss=loss,
                steps=steps,
                target=target.value,
                address=address,
                num_cpus=num_cpus,
                num_gpus=num_gpus,
                strategy=strategy.value,
                replicas=replicas,
                batch=batch,
                recipe=Recipe(
                    optimizer=optimizer,
                    learning_rate=learning_rate,
                    scheduler=scheduler,
                    max_norm=max_norm,
                    accumulate=accumulate,
                    reduction=reduction.value,
                    seed=seed,
                    autocast=None if autocast is None else autocast.value,
                ),
                compare=compare,
                transport=transport.value,
                timeout=timeout,
                checkpoints=checkpoints,
                checkpoint_every=checkpoint_every,
                max_restarts=max_restarts,
                resume=resume,
                profile=profile,
                timeline=timeline,
                format=format,
            )
        )


def _require_suffix(timeline: str | None) -> None:
    """Visualize and compare tell timelines from schedules by their names."""
    if timeline is not None and not timeline.endswith(TIMELINE_SUFFIX):
        raise typer.BadParameter(f"{timeline!r}: the name of a timeline ends in {TIMELINE_SUFFIX}")


def _require_extra(target: RunTarget) -> None:
    needed = ("torch",) if target in (RunTarget.AUTO, RunTarget.LOCAL) else ("torch", "ray")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        message = f"running needs {names}, which {'is' if len(missing) == 1 else 'are'} not installed"
        raise PipeError(Diagnostic("P715", message, None, "pip install 'piper-dsl[run]'"))
