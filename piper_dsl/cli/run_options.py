"""What ``piper-dsl run`` is told of a training run, in groups: see :mod:`piper_dsl.cli.options`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from math import inf, isnan
from typing import Annotated

import typer

from ..runtime.profile import PROFILE_SUFFIXES
from ..runtime.transports import TRANSPORTS
from ..simulate import TIMELINE_SUFFIX

__all__ = ["Batches", "Checkpointing", "Measuring", "Model", "Placing", "Updating"]


_EVERY = 100
"""Steps from checkpoint to checkpoint, where nobody says how many."""


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
    DIRECTION = "direction"
    PAIR = "pair"


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
    load_in_ranks: Annotated[
        bool,
        typer.Option(
            "--load-in-ranks", help="Ranks call --data by themselves; it must give the same batches in every process."
        ),
    ] = False


@dataclass(frozen=True)
class Placing:
    """What runs the schedule, and where. A usage error for options that the target would not use."""

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
    transport: Annotated[
        RunTransport,
        typer.Option(
            "--transport",
            help="How tensors go between ranks; direction and pair are for ray-program, others for ray-dag.",
        ),
    ] = RunTransport.AUTO
    steps_per_call: Annotated[
        int,
        typer.Option("--steps-per-call", min=1, metavar="N", help="Steps the ranks make in one call (ray-program)."),
    ] = 1
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0.1, help="Seconds a step may take (default: from past steps).")
    ] = None

    def __post_init__(self) -> None:
        if not 0 < self.num_cpus < inf:
            raise _wrong("--num-cpus", f"{self.num_cpus:g} is no number of CPUs; write one such as 1 or 0.5")
        if self.timeout is not None and not self.timeout < inf:
            raise _wrong("--timeout", f"{self.timeout:g} is no number of seconds; leave it out for no limit of yours")
        if self.address is not None and not self.address.strip():
            raise _wrong("--address", "it is empty; write HOST:PORT, as in 10.0.0.1:6379, or auto")
        for option, given, targets in self._for_targets():
            if given and self.target not in (RunTarget.AUTO, *targets):
                names = " and ".join(target.value for target in targets)
                raise _wrong(option, f"it is for {names}; target {self.target.value} has no use for it")

    def _for_targets(self) -> Iterator[tuple[str, bool, tuple[RunTarget, ...]]]:
        """Options, whether they are given, and the targets that they are for."""
        on_ray = (RunTarget.RAY_DAG, RunTarget.RAY_PROGRAM)
        yield "--transport", True, tuple(map(RunTarget, TRANSPORTS[self.transport.value].targets))
        yield "--address", self.address is not None, on_ray
        yield "--num-cpus", self.num_cpus != 1.0, on_ray
        yield "--num-gpus", self.num_gpus is not None, on_ray
        yield "--strategy", self.strategy is not Strategy.PACK, on_ray


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
    seed: Annotated[
        int,
        typer.Option(
            "--seed", min=-(2**63), max=2**63 - 1, help="Seed of weights, data, and random numbers of stages."
        ),
    ] = 0

    def __post_init__(self) -> None:
        if isnan(self.learning_rate):
            raise _wrong("--lr", "nan is no learning rate; write a number such as 0.003")
        if self.max_norm is not None and not self.max_norm > 0:
            raise _wrong("--max-norm", f"gradients cannot be clipped to {self.max_norm:g}; write a positive number")


@dataclass(frozen=True)
class Checkpointing:
    """What is kept for later. A usage error where there would be nothing to go on from."""

    checkpoints: Annotated[
        str | None,
        typer.Option("--checkpoints", metavar="FOLDER", help="Where checkpoints are written and taken up."),
    ] = None
    checkpoint_every: Annotated[
        int | None, typer.Option("--checkpoint-every", min=1, metavar="STEPS", help=f"How often (default: {_EVERY}).")
    ] = None
    max_restarts: Annotated[
        int, typer.Option("--max-restarts", min=0, metavar="N", help="Go on from a checkpoint where a rank died.")
    ] = 0
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint, if there is one.")] = False

    def __post_init__(self) -> None:
        if self.checkpoints is not None and not self.checkpoints.strip():
            raise _wrong("--checkpoints", "it is empty; name a folder, as in --checkpoints runs/a")
        given = {
            "--checkpoint-every": self.checkpoint_every is not None,
            "--max-restarts": self.max_restarts > 0,
            "--resume": self.resume,
        }
        for option in (option for option in given if given[option] and self.checkpoints is None):
            raise _wrong(option, "it needs a folder of checkpoints; add --checkpoints FOLDER")

    @property
    def every(self) -> int:
        """Steps from checkpoint to checkpoint."""
        return self.checkpoint_every or _EVERY


@dataclass(frozen=True)
class Measuring:
    """What is compared and written down. A usage error for files whose names would not tell what they are."""

    compare: Annotated[
        bool, typer.Option("--compare", help="Train the same model in one process too and report the difference.")
    ] = False
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", metavar="FILE", help="Write measured costs, as .toml or .json, for simulate --costs."
        ),
    ] = None
    timeline: Annotated[
        str | None,
        typer.Option(
            "--timeline", metavar="FILE.json", help="Write when a measured step ran what, for visualize and compare."
        ),
    ] = None

    def __post_init__(self) -> None:
        for option, path, suffixes in (
            ("--profile", self.profile, PROFILE_SUFFIXES),
            ("--timeline", self.timeline, (TIMELINE_SUFFIX,)),
        ):
            if path is not None and not path.endswith(suffixes):
                raise _wrong(option, f"{path!r} does not end in {' or '.join(suffixes)}, which says what the file is")
        if self.profile is not None and self.profile == self.timeline:
            raise _wrong("--timeline", f"{self.timeline!r} is the file of --profile too; name another")


def _wrong(option: str, message: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint=f"'{option}'")
