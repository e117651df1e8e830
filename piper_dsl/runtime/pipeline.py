"""The driver: a model, a schedule and a target, one optimizer step at a time."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from ..diagnostics import Diagnostic, PipeError
from ..ir.operations import BACKWARD, Kind
from ..ir.schedule import Schedule
from ..lower import lower
from ..lower.program import Code, Program
from ..simulate import Costs
from .batch import Data, split_batch
from .failure import OperationFailed
from .optimizer import OptimizerFactory
from .report import RankReport, Timed
from .spec import Batch, RankSpec
from .stage import LossFunction

__all__ = ["Pipeline", "StepReport", "Target", "measured_costs"]

TARGETS = ("local", "ray-dag")
TRANSPORTS = ("auto", "accelerator", "shared-memory", "gloo")


class Target(Protocol):
    """What executes a Program on ranks; all targets run the same :class:`~.rank.Rank`."""

    name: str

    def step(self, batches: Sequence[Batch]) -> list[RankReport]: ...

    def state(self) -> list[dict[int, dict[str, Any]]]: ...

    def gradients(self) -> list[dict[int, dict[str, torch.Tensor]]]: ...

    def held(self) -> list[int]: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class StepReport:
    """One step as it ran: what every rank said of it, and ``seconds`` as the driver saw them."""

    ranks: tuple[RankReport, ...]
    seconds: float

    @cached_property
    def losses(self) -> Mapping[tuple[int, int], float]:
        """By (stage, microbatch), of the stages that have a loss."""
        return {key: loss for rank in self.ranks for key, loss in rank.losses.items()}

    @cached_property
    def operations(self) -> tuple[tuple[Timed, ...], ...]:
        """Per rank, in the order of its row. An OPT has the times of its optimizer, which runs at the end."""
        return tuple(rank.timed() for rank in self.ranks)

    @property
    def loss(self) -> float:
        """The mean over microbatches, summed over the stages that have a loss."""
        stages = {stage for stage, _ in self.losses}
        return sum(float(np.mean([x for (s, _), x in self.losses.items() if s == stage])) for stage in stages)

    @property
    def makespan(self) -> float:
        """Seconds from the start of the first operation to the end of the last, over all ranks."""
        times = np.concatenate([rank.times for rank in self.ranks])
        return float(times.max() - times.min())


def measured_costs(reports: Sequence[StepReport], stages: int) -> Costs:
    """The median duration of every kind on every stage, in seconds, for :func:`piper_dsl.simulate`."""
    spent: dict[Kind, list[list[float]]] = {}
    for timed in (one for report in reports for row in report.operations for one in row):
        by_stage = spent.setdefault(timed.operation.kind, [[] for _ in range(stages)])
        by_stage[timed.operation.stage].append(timed.end - timed.start)
    medians: dict[str, Any] = {
        kind.name: [float(np.median(x)) if x else 0.0 for x in rows] for kind, rows in spent.items()
    }
    return Costs(latency=0.0, **medians)


class Pipeline:
    """A model in stages, trained by a schedule on a target. A context manager: leaves no process behind.

    ``stages`` are the modules of stages 0, 1, …; each takes the tensors that its predecessor returns
    (a tensor or a tuple of them). ``loss_fn(*outputs, *targets)`` gives the mean loss of a microbatch;
    ``optimizer`` makes the optimizer of one stage from its parameters. The result equals one step of the
    whole model on the whole batch, for a loss that is a mean over it.

    ``timeout`` bounds a step, in seconds; None lets the target choose from what it has measured.
    ``transport`` says how target ray-dag moves tensors between ranks: ``auto`` (NCCL where every rank
    can have a GPU, else shared memory), ``accelerator``, ``shared-memory`` (on CPUs) or, to test the
    accelerator's path on CPUs, ``gloo``.

    Raises :class:`PipeError` where schedule, model and target do not fit together, with the fix.
    """

    def __init__(
        self,
        stages: Sequence[nn.Module],
        schedule: Schedule,
        *,
        loss_fn: LossFunction | None = None,
        optimizer: OptimizerFactory | None = None,
        target: str = "local",
        timeout: float | None = None,
        transport: str = "auto",
    ) -> None:
        findings = [*_misfits(stages, schedule, loss_fn, optimizer), *_unknown(target, transport, timeout)]
        if findings:
            raise PipeError(*findings)
        self.schedule = schedule
        self.program: Program = lower(schedule)
        self.last: StepReport | None = None
        self._steps = 0
        self._broken: str | None = None
        self._closed = False
        specs = _specs(stages, schedule, self.program, loss_fn, optimizer)
        self._target = _start(target, self.program, specs, timeout, transport)

    def step(self, inputs: Data | Mapping[int, Data], targets: Data | Mapping[int, Data] | None = None) -> float:
        """Runs the schedule once on a batch and returns its mean loss.

        Tensors have the batch as their first dimension, a multiple of the schedule's microbatches.
        Raises :class:`PipeError` for a batch that does not fit, an operation that raised (with rank,
        stage, kind and microbatch) and a rank that died. An operation that raised leaves no trace: no rank
        steps, and the next step is what it would have been. After an optimizer that raised and a rank that
        died the pipeline refuses to go on.
        """
        self._refuse_if_over()
        if self._broken:
            raise PipeError(Diagnostic("P712", f"the pipeline stopped: {self._broken}", None, "make a new one"))
        schedule = self.schedule
        batches = split_batch(self._steps, inputs, targets, schedule.microbatches, schedule.graph, schedule.placement)
        started = time.monotonic()
        try:
            reports = self._target.step(batches)
        except OperationFailed as failure:
            if failure.operation.kind is Kind.OPT:
                self._broken = str(failure)
            raise PipeError(failure.diagnostic()) from failure
        except PipeError as error:
            self._broken = error.diagnostics[0].message
            raise
        except BaseException:
            self._broken = "a step was interrupted"
            raise
        self._steps += 1
        self.last = StepReport(tuple(reports), time.monotonic() - started)
        return self.last.loss

    def state_dict(self) -> dict[int, dict[str, Any]]:
        """The state dict of every stage's module, by stage, on the CPU."""
        self._refuse_if_over()
        return _merged(self._target.state())

    def gradients(self) -> dict[int, dict[str, torch.Tensor]]:
        """The gradients accumulated since the last optimizer step, by stage and parameter, on the CPU."""
        self._refuse_if_over()
        return _merged(self._target.gradients())

    def held(self) -> list[int]:
        """Per rank, how many microbatches it still holds something of; all 0 between steps."""
        self._refuse_if_over()
        return self._target.held()

    def close(self) -> None:
        """Ends every process of the pipeline. Safe to call twice."""
        if not self._closed:
            self._closed = True
            self._target.close()

    def _refuse_if_over(self) -> None:
        if self._closed:
            raise PipeError(Diagnostic("P712", "the pipeline is closed", None, "ask inside its `with` block"))

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _merged(parts: Sequence[Mapping[int, Any]]) -> dict[int, Any]:
    found = {stage: value for part in parts for stage, value in part.items()}
    return {stage: found[stage] for stage in sorted(found)}


def _misfits(
    stages: Sequence[nn.Module],
    schedule: Schedule,
    loss_fn: LossFunction | None,
    optimizer: OptimizerFactory | None,
) -> Iterator[Diagnostic]:
    """What keeps a model from being trained by a schedule."""
    if len(stages) != schedule.stages:
        message = f"the schedule `{schedule.name}` has {schedule.stages} stages, the model has {len(stages)}"
        yield Diagnostic("P701", message, None, f"cut the model into {schedule.stages} stages")
    owner: dict[int, int] = {}
    for number, stage in enumerate(stages):
        if not isinstance(stage, nn.Module):
            yield Diagnostic("P701", f"stage {number} is a {type(stage).__name__}, not a torch module")
            continue
        shared = {owner.setdefault(id(p), number) for p in stage.parameters()} - {number}
        if shared:
            message = f"stages {min(shared)} and {number} share a parameter, which each would step by itself"
            yield Diagnostic("P702", message, None, "give each its own, or put what they share into one stage")
    if any(len(copies) > 1 for copies in schedule.placement.copies):
        message = "stages with copies on several ranks (bidirectional pipelines) check and simulate, but do not run yet"
        yield Diagnostic("P702", message)
    if schedule.ties:
        yield Diagnostic("P702", "tied stages check and simulate, but do not run yet")
    kinds = {Kind(int(kind)) for kind in np.unique(schedule.kind)}
    if kinds & set(BACKWARD) and loss_fn is None:
        yield Diagnostic("P701", "a schedule with a backward needs a loss", None, "pass `loss_fn`")
    if Kind.OPT in kinds and optimizer is None:
        yield Diagnostic("P701", "a schedule with OPT needs an optimizer", None, "pass `optimizer`")
    if kinds & set(BACKWARD) and Kind.OPT not in kinds and optimizer is not None:
        message = "the schedule has backwards and no OPT: the optimizer would never step"
        help_ = "write OPT for every stage (`piper-dsl import` makes a .pipe file of a CSV), or pass no `optimizer`"
        yield Diagnostic("P701", message, None, help_)


def _unknown(target: str, transport: str, timeout: float | None) -> Iterator[Diagnostic]:
    """What keeps a target from being started."""
    for what, name, known in (("target", target, TARGETS), ("transport", transport, TRANSPORTS)):
        if name not in known:
            yield Diagnostic("P702", f"there is no {what} `{name}`", None, f"one of {', '.join(known)}")
    if timeout is not None and not timeout > 0:
        yield Diagnostic("P702", f"a timeout of {timeout:g} s would end every step", None, "give seconds, or None")


def _specs(
    stages: Sequence[nn.Module],
    schedule: Schedule,
    program: Program,
    loss_fn: LossFunction | None,
    optimizer: OptimizerFactory | None,
) -> list[RankSpec]:
    codes = program.columns[:, 0]
    recomputed = frozenset((s, i) for s, i in program.columns[codes == Code.R, 1:3].tolist())
    trained = bool(np.isin(codes, [int(kind) for kind in BACKWARD]).any())
    return [
        RankSpec(
            rank=rank,
            graph=schedule.graph,
            placement=schedule.placement,
            microbatches=schedule.microbatches,
            modules={stage: stages[stage] for stage in schedule.placement.owned[rank]},
            trained=trained,
            recomputed=recomputed,
            loss_fn=loss_fn,
            optimizer=optimizer,
        )
        for rank in range(schedule.ranks)
    ]


def _start(target: str, program: Program, specs: list[RankSpec], timeout: float | None, transport: str) -> Target:
    if target == "local":
        from ..targets.local import LocalTarget

        # As on any other target, what is trained is a copy; `state_dict` hands it out.
        return LocalTarget(program, [copy.deepcopy(spec) for spec in specs])
    from ..targets.ray_dag import RayDagTarget

    return RayDagTarget(program, specs, timeout, transport)
