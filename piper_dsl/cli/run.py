"""piper-dsl run: train a model by a schedule."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

from ..diagnostics import Diagnostic, PipeError
from ..expand import DEFAULT_MAX_OPS
from .common import File, Format, FormatOption, MaxOps, Parameters, checked, errors
from .options import grouped
from .run_options import Batches, Checkpointing, Measuring, Model, Placing, RunTarget, Updating

if TYPE_CHECKING:
    from ..ir.schedule import Schedule

__all__ = ["run"]


@grouped
def run(
    file: File,
    param: Parameters = None,
    *,
    model: Model,
    batches: Batches,
    placing: Placing,
    updating: Updating,
    checkpointing: Checkpointing,
    measuring: Measuring,
    format: FormatOption = Format.TEXT,
    max_ops: MaxOps = DEFAULT_MAX_OPS,
) -> None:
    """Train a model by a schedule; by default a small GPT on English text.

    The functions that --model and --data name may take one number: how many stages, how many samples.

    Example: piper-dsl run 1f1b -p p=2 -p m=4 --steps 30 --model mine:stages --data mine:batches --loss mine:loss
    """
    with errors():
        schedule = checked(file, param, max_ops)
        _require_size(schedule, placing.replicas, max_ops)
        _require_extra(placing.target)
        from .training import Job, train

        # Modules of the current folder are found, here and by the actors.
        sys.path.insert(0, os.getcwd())
        train(Job(schedule, model, batches, placing, updating, checkpointing, measuring, format))


def _require_size(schedule: Schedule, replicas: int, max_ops: int) -> None:
    """Raises PipeError (P208) for replicas that make the schedule too large."""
    count = len(schedule) * replicas
    if count > max_ops:
        message = f"{replicas:,} replicas have {count:,} operations, more than the limit of {max_ops:,}"
        raise PipeError(Diagnostic("P208", message, None, "take fewer --replicas, or raise the limit with `--max-ops`"))


def _require_extra(target: RunTarget) -> None:
    needed = ("torch",) if target in (RunTarget.AUTO, RunTarget.LOCAL) else ("torch", "ray")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        message = f"running needs {names}, which {'is' if len(missing) == 1 else 'are'} not installed"
        raise PipeError(Diagnostic("P715", message, None, "pip install 'piper-dsl[run]'"))
