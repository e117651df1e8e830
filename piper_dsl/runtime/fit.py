"""What keeps a model, a schedule and a target from going together, found before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from operator import index
from typing import SupportsIndex

import numpy as np
from torch import nn

from ..diagnostics import Diagnostic
from ..ir.operations import BACKWARD, Kind
from ..ir.schedule import Schedule
from .optimizer import OptimizerFactory
from .settings import AUTOCASTS, REDUCTIONS, Settings
from .stage import LossFunction
from .transports import TARGETS, TRANSPORTS

__all__ = ["misfits", "uncallable", "unknown", "unsaved"]


def misfits(
    stages: Sequence[nn.Module],
    schedule: Schedule,
    loss_fn: LossFunction | None,
    optimizer: OptimizerFactory | None,
    settings: Settings,
) -> Iterator[Diagnostic]:
    """What keeps a model from being trained by a schedule."""
    if len(stages) != schedule.stages:
        message = f"the schedule `{schedule.name}` has {schedule.stages} stages, the model has {len(stages)}"
        yield Diagnostic("P701", message, None, f"cut the model into {schedule.stages} stages")
    for number, stage in enumerate(stages):
        if not isinstance(stage, nn.Module):
            yield Diagnostic("P701", f"stage {number} is a {type(stage).__name__}, not a torch module")
    yield from _ties([stage for stage in stages if isinstance(stage, nn.Module)], schedule)
    kinds = {Kind(int(kind)) for kind in np.unique(schedule.kind)}
    if kinds & set(BACKWARD) and loss_fn is None:
        yield Diagnostic("P701", "a schedule with a backward needs a loss", None, "pass `loss_fn`")
    if Kind.OPT in kinds and optimizer is None:
        yield Diagnostic("P701", "a schedule with OPT needs an optimizer", None, "pass `optimizer`")
    if optimizer is None and (settings.scheduler or settings.max_norm is not None or settings.accumulate != 1):
        message = "`scheduler`, `max_norm` and `accumulate` are about the steps of an optimizer, and there is none"
        yield Diagnostic("P701", message, None, "pass `optimizer`")
    if kinds & set(BACKWARD) and Kind.OPT not in kinds and optimizer is not None:
        message = "the schedule has backwards and no OPT: the optimizer would never step"
        help_ = "write OPT for every stage (`piper-dsl import` makes a .pipe file of a CSV), or pass no `optimizer`"
        yield Diagnostic("P701", message, None, help_)


def _ties(stages: Sequence[nn.Module], schedule: Schedule) -> Iterator[Diagnostic]:
    """Stages share a parameter where, and only where, the schedule ties them."""
    owners: dict[int, set[int]] = {}
    for number, stage in enumerate(stages):
        for parameter in stage.parameters():
            owners.setdefault(id(parameter), set()).add(number)
    shared = {pair for found in owners.values() for pair in combinations(sorted(found), 2)}
    for one, other in sorted(shared):
        if not any({one, other} <= set(tied) for tied in schedule.ties):
            message = f"stages {one} and {other} share a parameter, which each would step by itself"
            yield Diagnostic("P702", message, None, f"write `tie {one}, {other}` in the schedule, or give each its own")
    for tied in schedule.ties:
        if not any(set(pair) <= set(tied) for pair in shared):
            message = f"stages {' and '.join(map(str, tied))} are tied, but their modules share no parameter"
            yield Diagnostic("P702", message, None, "put the same torch Parameter into each")


def unknown(
    target: str, transport: str, timeout: float | None, replicas: int, settings: Settings
) -> Iterator[Diagnostic]:
    """What keeps a target from being started."""
    if settings.reduction not in REDUCTIONS:
        message = f"there is no reduction `{settings.reduction}`"
        yield Diagnostic("P702", message, None, f"one of {', '.join(REDUCTIONS)}")
    if settings.autocast not in AUTOCASTS:
        message = f"autocast to {settings.autocast} would need what a pipeline does not do: scaled losses, or more"
        yield Diagnostic("P702", message, None, "use torch.bfloat16, or None")
    if replicas < 1:
        message = f"a model cannot be trained by {replicas} replicas"
        yield Diagnostic("P702", message, None, "give a number of at least 1")
    if settings.accumulate < 1:
        message = f"gradients cannot accumulate over {settings.accumulate} steps"
        yield Diagnostic("P702", message, None, "give a number of at least 1")
    if settings.max_norm is not None and not settings.max_norm > 0:
        message = f"gradients cannot be clipped to a norm of {settings.max_norm:g}"
        yield Diagnostic("P702", message, None, "give a positive number, or None")
    if not _is_seed(settings.seed):
        message = f"a seed of {settings.seed} is no whole number of 64 bits"
        yield Diagnostic("P702", message, None, "give a whole number from -2**63 to 2**63 - 1")
    for what, name, known in (("target", target, TARGETS), ("transport", transport, TRANSPORTS)):
        if name not in known:
            yield Diagnostic("P702", f"there is no {what} `{name}`", None, f"one of {', '.join(known)}")
    if target in TARGETS and transport in TRANSPORTS:
        yield from _useless(target, transport)
    if timeout is not None and not timeout > 0:
        yield Diagnostic("P702", f"a timeout of {timeout:g} s would end every step", None, "give seconds, or None")


def _useless(target: str, transport: str) -> Iterator[Diagnostic]:
    """A transport that a target does not know."""
    known = TRANSPORTS[transport].targets
    if target not in ("auto", *known):
        message = f"transport `{transport}` is for target {known[0]}; target {target} has no use for it"
        own = [name for name, carrier in TRANSPORTS.items() if target in carrier.targets]
        yield Diagnostic("P702", message, None, f"leave it out, or take one of {', '.join(own)}")


def _is_seed(seed: object) -> bool:
    """Whether generators can be seeded with it."""
    return isinstance(seed, SupportsIndex) and -(2**63) <= index(seed) < 2**63


def unsaved(checkpoints: object, every: int, max_restarts: int) -> Iterator[Diagnostic]:
    """Restarts without checkpoints: every batch from the first would have to be kept."""
    if max_restarts and checkpoints is None:
        yield Diagnostic("P701", "restarts go on from a checkpoint, and there are none", None, "pass `checkpoints`")
    for what, number, least in (("checkpoint_every", every, 1), ("max_restarts", max_restarts, 0)):
        if number < least:
            yield Diagnostic("P702", f"`{what}` is {number}", None, f"give a number of at least {least}")


def uncallable(loader: object) -> Iterator[Diagnostic]:
    """Batches in the place of what makes them in every process."""
    if loader is not None and not callable(loader):
        message = f"a loader is a function that makes the batches, not a {type(loader).__name__}"
        yield Diagnostic("P701", message, None, "pass a function without arguments that returns them")
