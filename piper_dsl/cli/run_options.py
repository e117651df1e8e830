"""What ``piper-dsl run`` is told of a training run, in groups: see :mod:`piper_dsl.cli.options`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import typer

from ..simulate import TIMELINE_SUFFIX

__all__ = ["Batches", "Checkpointing", "Measuring", "Model", "Placing", "Updating"]


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


@dataclass(frozen=True)
class Model:
    """What is trained; functions by name, as ``module:function``."""

    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="MODULE:FUNCTION",
            help="Makes the stages, a list of torch modules; or one, with --split.",
        ),
    ] = "piper_dsl.demo.gpt:stages"
    split: Annotated[
        str | None,
        typer.Option(
            "--split",
            metavar="HOW",
            help="Cut one module into the stages: time, parameters, marks, or names of layers with commas between.",
        ),
    ] = None
    loss: Annotated[str, typer.Option("--loss", metavar="MODULE:FUNCTION", help="The loss of (outputs, targets).")] = (
        "piper_dsl.demo.gpt:next_byte_loss"
    )


@dataclass(frozen=True)
class Batches:
    """What it is trained on."""

    data: Annotated[
        str,
        typer.Option("--data", metavar="MODULE:FUNCTION", help="Makes batches: an iterable of (inputs, targets)."),
    ] = "piper_dsl.demo.text:batches"
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps, each of one batch.")] = 30
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Samples per step, over all microbatches and replicas.")
    ] = 16


@dataclass(frozen=True)
class Placing:
    """What runs the schedule, and where."""

    target: Annotated[RunTarget, typer.Option("--target", help="What runs the schedule.")] = RunTarget.RAY_DAG
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="HOST:PORT", help="Join this Ray cluster instead of starting Ray; or auto."),
    ] = None
    num_cpus: Annotated[
        float, typer.Option("--num-cpus", min=0.01, metavar="X", help="CPUs of Ray that each rank holds.")
    ] = 1.0
    num_gpus: Annotated[
        int | None,
        typer.Option("--num-gpus", min=0, metavar="N", help="GPUs of each rank (default: one if there are enough)."),
    ] = None
    strategy: Annotated[
        Strategy, typer.Option("--strategy", help="How ranks are laid over the nodes of a cluster.")
    ] = Strategy.PACK
    replicas: Annotated[
        int,
        typer.Option("--replicas", min=1, metavar="D", help="Pipelines side by side, each with a part of the batch."),
    ] = 1
    transport: Annotated[RunTransport, typer.Option("--transport", help="How target ray-dag moves tensors.")] = (
        RunTransport.AUTO
    )
    steps_per_call: Annotated[
        int,
        typer.Option("--steps-per-call", min=1, metavar="N", help="Steps the ranks make in one call (ray-program)."),
    ] = 1
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0.1, help="Seconds a step may take (default: from past steps).")
    ] = None


@dataclass(frozen=True)
class Updating:
    """How optimizers step. ``optimizer`` and ``scheduler`` are names, of torch or of the form ``module:function``."""

    optimizer: Annotated[
        str,
        typer.Option("--optimizer", metavar="NAME", help="A class of torch.optim, or MODULE:FUNCTION of parameters."),
    ] = "AdamW"
    learning_rate: Annotated[
        float, typer.Option("--lr", min=0.0, help="Learning rate of an optimizer of torch.optim.")
    ] = 3e-3
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            metavar="NAME",
            help="Of the learning rate: cosine, linear, or MODULE:FUNCTION of an optimizer.",
        ),
    ] = None
    max_norm: Annotated[
        float | None,
        typer.Option("--max-norm", metavar="X", help="Clip the gradients to this norm, taken over all stages."),
    ] = None
    accumulate: Annotated[
        int, typer.Option("--accumulate", min=1, metavar="K", help="Step the optimizers once every K steps.")
    ] = 1
    reduction: Annotated[
        LossReduction, typer.Option("--reduction", help="Whether --loss is the mean or the sum over samples.")
    ] = LossReduction.MEAN
    autocast: Annotated[
        AutocastType | None, typer.Option("--autocast", help="Run forwards and losses under torch.autocast.")
    ] = None
    seed: Annotated[int, typer.Option("--seed", help="Seed of weights, data, and random numbers of stages.")] = 0


@dataclass(frozen=True)
class Checkpointing:
    """What is kept for later. A usage error where there is nothing to resume from."""

    checkpoints: Annotated[
        str | None,
        typer.Option("--checkpoints", metavar="FOLDER", help="Where checkpoints are written and taken up."),
    ] = None
    checkpoint_every: Annotated[
        int, typer.Option("--checkpoint-every", min=1, metavar="STEPS", help="How often one is written.")
    ] = 100
    max_restarts: Annotated[
        int, typer.Option("--max-restarts", min=0, metavar="N", help="Go on from a checkpoint where a rank died.")
    ] = 0
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint, if there is one.")] = False

    def __post_init__(self) -> None:
        if self.resume and self.checkpoints is None:
            raise typer.BadParameter("--resume takes up a checkpoint of the folder that --checkpoints names")


@dataclass(frozen=True)
class Measuring:
    """What is compared and written down. A usage error for a timeline whose name would not tell what it is."""

    compare: Annotated[
        bool, typer.Option("--compare", help="Train the same model in one process too and report the difference.")
    ] = False
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="FILE", help="Write measured costs, for simulate --costs.")
    ] = None
    timeline: Annotated[
        str | None,
        typer.Option(
            "--timeline", metavar="FILE.json", help="Write when a measured step ran what, for visualize and compare."
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.timeline is not None and not self.timeline.endswith(TIMELINE_SUFFIX):
            raise typer.BadParameter(f"{self.timeline!r}: the name of a timeline ends in {TIMELINE_SUFFIX}")
