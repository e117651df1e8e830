"""The driver: a model, a schedule and a target, one optimizer step at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import nn

from ..diagnostics import Diagnostic, PipeError
from ..ir.operations import Kind
from ..ir.replicas import replicate
from ..ir.schedule import Schedule
from ..lower import lower
from ..lower.program import Program
from ..models.split import as_stages
from .batch import Data, parts, split_batch
from .checkpoint import CheckpointFolder, describe
from .condition import Condition
from .dry_run import refuse_misfits
from .failure import OperationFailed
from .fit import misfits, uncallable, unknown, unsaved
from .launch import rank_specs, start_target
from .loader import Lead
from .measure import StepReport
from .optimizer import OptimizerFactory, SchedulerFactory
from .recovery import Recovery, Steps, Trained
from .resources import Resources, ungiven
from .settings import Settings
from .shared import shared_places, sum_shared
from .sigterm import Sigterm, Terminated
from .spec import Batch, RankSpec
from .stage import LossFunction

__all__ = ["Pipeline"]

_log = logging.getLogger("piper_dsl")

T = TypeVar("T")


class Pipeline:
    """A model in stages, trained by a schedule on a target. A context manager: leaves no process behind.

    ``stages`` are the modules of stages 0, 1, …; each takes the tensors that its predecessor returns
    (a tensor or a tuple of them). With ``split`` it is a whole model instead, which :func:`split_model` cuts
    there, by one microbatch of ``example_inputs``. ``loss_fn(*outputs, *targets)`` gives the loss of a microbatch, the
    mean or the sum over its samples as ``reduction`` says; ``optimizer`` makes the optimizer of one stage from its
    parameters. The result equals one step of the whole model on the whole batch.

    With ``replicas=d`` there are d pipelines side by side, each with ranks of its own and a part of the batch,
    which is cut into d times the schedule's microbatches; the gradients of a stage are summed over them.
    :attr:`schedule` is that of all replicas together.

    ``scheduler`` makes the learning-rate scheduler of a stage's optimizer, which is stepped with it.
    ``max_norm`` clips the gradients to a norm over all ranks. With ``accumulate=k`` the optimizers step in
    every k-th step, with the gradients of k batches together. Random numbers of a stage (dropout) follow from
    ``seed``, the step, the stage and the microbatch alone, so they are the same under every schedule and target.

    ``autocast=torch.bfloat16`` runs forwards and losses under torch.autocast: what it can compute in that data type
    is, and goes so between ranks; parameters, gradients and optimizers stay as they are.

    ``target`` is ``local``, ``ray-program``, ``ray-dag`` or ``auto``, which takes ray-program where every
    rank can have a GPU or a core of its own, and where ``RAY_ADDRESS`` names a cluster, else local.

    ``checkpoints`` is a folder for checkpoints, written every ``checkpoint_every`` steps and by :meth:`save`;
    :meth:`resume` takes one up. With ``max_restarts`` a rank that died is replaced that many times: all ranks
    start anew from the last checkpoint, run the batches since once more, and training goes on, with the numbers
    it would have had. The batches since the last checkpoint are kept for that.

    ``loader()`` makes the batches of :meth:`train_loaded` in every process that needs them: a sequence, by step, or
    any iterable, the same in each.

    ``timeout`` bounds a step, in seconds; None lets the target choose from what it has measured.
    ``transport`` says how target ray-dag moves tensors between ranks: ``auto`` (NCCL where every rank
    can have a GPU, else shared memory), ``accelerator``, ``shared-memory`` (on CPUs) or, to test the
    accelerator's path on CPUs, ``gloo``. On target ray-program it says what NCCL communicators there are on GPUs:
    one for each ``direction`` between two ranks (``auto``), or one for each ``pair``.

    On a Ray cluster every rank holds ``num_cpus`` and ``num_gpus`` (None: one where the cluster has one for every
    rank and the transport moves tensors of GPUs, else none) from here until :meth:`close`. ``strategy`` lays the ranks
    over nodes: ``pack`` fills node after node, ``spread`` takes them in turn, ``strict-pack`` takes one node and
    ``strict-spread`` a node for each rank, or nothing.

    Raises :class:`PipeError` where schedule, model and target do not fit together, with the fix.
    """

    def __init__(
        self,
        stages: Sequence[nn.Module] | nn.Module,
        schedule: Schedule,
        *,
        split: str | Sequence[str] | None = None,
        example_inputs: Data | None = None,
        loss_fn: LossFunction | None = None,
        optimizer: OptimizerFactory | None = None,
        scheduler: SchedulerFactory | None = None,
        max_norm: float | None = None,
        accumulate: int = 1,
        reduction: str = "mean",
        seed: int = 0,
        autocast: torch.dtype | None = None,
        replicas: int = 1,
        loader: Callable[[], Any] | None = None,
        checkpoints: str | Path | None = None,
        checkpoint_every: int = 100,
        max_restarts: int = 0,
        target: str = "local",
        timeout: float | None = None,
        transport: str = "auto",
        num_cpus: float = 1,
        num_gpus: int | None = None,
        strategy: str = "pack",
    ) -> None:
        stages = as_stages(stages, split, example_inputs, schedule.stages)
        settings = Settings(reduction, accumulate, max_norm, scheduler, seed, autocast)
        resources = Resources(num_cpus, num_gpus, strategy)
        findings = [
            *misfits(stages, schedule, loss_fn, optimizer, settings),
            *unknown(target, transport, timeout, replicas, settings),
            *unsaved(checkpoints, checkpoint_every, max_restarts),
            *ungiven(resources, transport),
            *uncallable(loader),
        ]
        if findings:
            raise PipeError(*findings)
        one = lower(schedule)
        self.replicas = replicas
        self.schedule = schedule = replicate(schedule, replicas)
        self.program: Program = one if replicas == 1 else lower(schedule)
        self.last: StepReport | None = None
        self._settings = settings
        self._loader = loader
        self._saves = checkpoints is not None
        self._steps = 0
        self._condition = Condition()
        self._places = list(shared_places(stages, schedule.placement).values())
        self._unchecked: list[RankSpec] | None
        self._unchecked = specs = rank_specs(
            stages, schedule, self.program, loss_fn, optimizer, settings, replicas, loader
        )
        # A folder that cannot be written to is told of before anything starts.
        folder = None if checkpoints is None else CheckpointFolder(checkpoints, describe(one, stages))
        self._target = start_target(target, schedule, self.program, specs, timeout, transport, resources)
        self._recovery = Recovery(self._target, self._run, folder, checkpoint_every, max_restarts)
        self._sigterm = Sigterm()

    @property
    def target(self) -> str:
        """The name of the target that runs; never ``auto``."""
        return self._target.name

    def step(self, inputs: Data | Mapping[int, Data], targets: Data | Mapping[int, Data] | None = None) -> float:
        """Runs the schedule once on a batch and returns its mean loss.

        Tensors have the batch as their first dimension, a multiple of the schedule's microbatches (times
        the replicas). Raises :class:`PipeError` for a batch that does not fit, an operation that raised (with rank,
        stage, kind and microbatch) and a rank that died. An operation that raised leaves no trace: no rank
        steps, and the next step is what it would have been. After an optimizer that raised and a rank that
        died, where no restart is left, the pipeline refuses to go on. A step that counts and whose checkpoint cannot
        be written raises P716; :attr:`last` has its loss.
        """
        trained = self._train([self._cut(inputs, targets, training=True)])
        for report in trained.reports:
            self.last = report
        if trained.failure is not None:
            raise trained.failure
        return trained.reports[0].loss

    def train(self, batches: Iterable[Sequence[Any]], steps_per_call: int = 1) -> Iterator[float]:
        """Runs a step on each of ``batches``, as an iterator over their losses; a batch is what :meth:`step` takes.

        Up to ``steps_per_call`` steps go to the ranks in one call, which saves what a call costs; target ray-program
        is faster for it. A call is shorter where the data ends and where a checkpoint is due, so everything is as
        with :meth:`step`, except that losses come call by call. :attr:`last` is the report of the loss that came last.

        Raises what :meth:`step` raises, and what ``batches`` raises, when the losses of all steps before have come.
        A call ends with the first step that fails, so of the batches that were taken, at most ``steps_per_call``
        have then not been used.
        """
        rest = iter(batches)
        return self._training(lambda ahead: self._cut(*parts(next(rest)), training=True, ahead=ahead), steps_per_call)

    def train_loaded(self, until: int | None = None, steps_per_call: int = 1) -> Iterator[float]:
        """The same with batches that the ranks take from the ``loader`` by themselves, not from the driver.

        A step has the batch of its number, counted from 0: training begins with that of the next step, and ends with
        the batches, or once the pipeline has seen ``until`` steps. The driver draws the first batch alone; all have
        its shapes.

        Raises what :meth:`train` raises, and :class:`PipeError` (P703) for batches of other shapes or of other values
        than the driver's, and where there is no end.
        """
        if self._loader is None:
            raise PipeError(Diagnostic("P701", "the pipeline has no loader", None, "pass `loader`, or use `train`"))
        lead = Lead(self._loader, until)
        return self._training(lambda ahead: self._lent(lead, ahead), steps_per_call)

    def _lent(self, lead: Lead, ahead: int) -> list[Batch]:
        """The data of a step, or what ranks need to draw it. Raises StopIteration at the end."""
        self._condition.refuse_if_over()
        step = self._steps + ahead
        updates = self._settings.updates(step)
        return lead.take(step, updates, lambda *batch: self._cut(*batch, training=True, ahead=ahead))

    def _training(self, take: Callable[[int], list[Batch]], steps_per_call: int) -> Iterator[float]:
        """Losses of steps whose data ``take`` gives, for the step that so many of a call go before."""
        if steps_per_call < 1:
            raise PipeError(Diagnostic("P701", f"steps_per_call must be at least 1, not {steps_per_call}"))
        return self._losses(take, steps_per_call)

    def _losses(self, take: Callable[[int], list[Batch]], steps_per_call: int) -> Iterator[float]:
        error: Exception | None = None
        while error is None:
            due = self._recovery.before_saving(self._steps)
            steps, error = self._taken(take, steps_per_call if due is None else min(due, steps_per_call))
            trained = self._train(steps) if steps else Trained(())
            for report in trained.reports:
                self.last = report
                yield report.loss
            error = trained.failure or error
        if not isinstance(error, StopIteration):
            raise error

    def _taken(self, take: Callable[[int], list[Batch]], most: int) -> tuple[list[list[Batch]], Exception | None]:
        """The data of the next steps, and why there is no more of it, where there is not."""
        steps: list[list[Batch]] = []
        try:
            while len(steps) < most:
                steps.append(take(len(steps)))
        except Exception as error:
            return steps, error
        return steps, None

    def _train(self, steps: Steps) -> Trained:
        with self._sigterm.held():
            trained = self._recovery.train(steps)
            if trained.reports:
                self._steps += len(trained.reports)
                trained = self._saved(trained)
        return trained

    def _saved(self, trained: Trained) -> Trained:
        """The steps, which count also where the checkpoint that is due behind them cannot be written."""
        try:
            with self._condition.asking():
                self._recovery.stepped(self._steps)
        except PipeError as error:
            said = f"step {self._steps} itself is done, and counts"
            noted = PipeError(*(replace(finding, notes=(*finding.notes, said)) for finding in error.diagnostics))
            noted.__cause__ = error
            return replace(trained, failure=noted)
        return trained

    def evaluate(self, inputs: Data | Mapping[int, Data], targets: Data | Mapping[int, Data] | None = None) -> float:
        """The mean loss of a batch: the forwards of the schedule, with the modules in their mode for evaluation.

        Leaves no trace: parameters, gradients and buffers stay as they are. Raises what :meth:`step` raises.
        """
        batches = self._cut(inputs, targets, training=False)
        with self._sigterm.held():
            trained = self._recovery.survive(lambda: self._run([batches]))
        if trained.failure is not None:
            raise trained.failure
        return trained.reports[0].loss

    def save(self) -> None:
        """Writes a checkpoint, now; nothing where the newest is of this step."""
        self._refuse_if_unsaved()
        with self._sigterm.held():
            self._save()

    def _save(self) -> None:
        with self._condition.asking():
            self._recovery.save_if_new(self._steps)

    @contextmanager
    def saving_on_sigterm(self) -> Iterator[None]:
        """Within it, a SIGTERM ends the program with a checkpoint of its last whole step, and the exit code 143.

        A step that is under way ends first; it is kept or dropped as a whole. A second SIGTERM ends the program at
        once, without a checkpoint; so does the first where the pipeline is closed or has stopped, or the checkpoint
        cannot be written, which is logged. Behind it, the handler is back that was there. The program ends by a
        SystemExit, so what it holds is closed. To be entered in the main thread, which alone hears signals.
        """
        self._refuse_if_unsaved()
        with self._sigterm.listening():
            try:
                yield
            except Terminated as end:
                if not end.at_once:
                    _log.warning("ended by SIGTERM, %s", self._saved_at_the_end())
                raise

    def _saved_at_the_end(self) -> str:
        try:
            self._refuse_if_unsaved()
            self._save()
        except PipeError as error:
            return f"without a checkpoint: {error.diagnostics[0].message}"
        return f"with a checkpoint of step {self._steps}"

    def resume(self) -> int:
        """Takes up the newest whole checkpoint, if there is one; how many steps the pipeline has now seen.

        Warns of newer ones that are damaged. Raises :class:`PipeError` (P716) for one of another schedule
        or model, with what differs.
        """
        self._refuse_if_unsaved()
        if found := self._recovery.newest():
            # Where one rank took it up and another did not, they are out of step.
            with self._condition.whole("a checkpoint was taken up by some ranks only"):
                self._recovery.take_up(found)
            self._steps = found.step
            for fault in found.damaged:
                _log.warning("a checkpoint is not used: %s", fault)
        return self._steps

    def _refuse_if_unsaved(self) -> None:
        self._condition.refuse_if_over()
        if not self._saves:
            raise PipeError(
                Diagnostic("P712", "the pipeline has no folder for checkpoints", None, "pass `checkpoints`")
            )

    def _cut(
        self,
        inputs: Data | Mapping[int, Data],
        targets: Data | Mapping[int, Data] | None = None,
        *,
        training: bool,
        ahead: int = 0,
    ) -> list[Batch]:
        """The data of the step that so many others go before, for every rank."""
        self._condition.refuse_if_over()
        schedule, step = self.schedule, self._steps + ahead
        batches = split_batch(
            step,
            inputs,
            targets,
            schedule.microbatches,
            schedule.graph,
            schedule.placement,
            training,
            self._settings.updates(step),
            self.replicas,
        )
        if self._unchecked is not None:
            refuse_misfits(self._unchecked, batches)
            self._unchecked = None
        return batches

    def _run(self, steps: Steps) -> Trained:
        started = time.monotonic()
        with self._condition.whole("a step was interrupted"):
            outcomes = self._target.run(steps)
        seconds = (time.monotonic() - started) / len(outcomes)
        failures = [outcome for outcome in outcomes if isinstance(outcome, OperationFailed)]
        reports = [tuple(outcome) for outcome in outcomes if not isinstance(outcome, OperationFailed)]
        torn = (str(failure) for failure in failures if failure.operation.kind is Kind.OPT)
        self._condition.stopped = next(torn, None)
        made = [StepReport(self.schedule, report, seconds, self._settings.reduction) for report in reports]
        return Trained(made, *(_raised(failure) for failure in failures))

    def state_dict(self) -> dict[int, dict[str, Any]]:
        """The state dict of every stage's module, by stage, on the CPU."""
        return _merged(self._ask(self._target.state))

    def gradients(self) -> dict[int, dict[str, torch.Tensor]]:
        """The gradients accumulated since the last optimizer step, by stage and parameter, on the CPU.

        Those of a parameter that lives at several places (copies, ties) are summed.
        """
        return sum_shared(self._ask(self._target.gradients), self._places)

    def held(self) -> list[int]:
        """Per rank, how many microbatches it still holds something of; all 0 between steps."""
        return self._ask(self._target.held)

    def _ask(self, question: Callable[[], T]) -> T:
        self._condition.refuse_if_closed()
        with self._condition.asking():
            return self._recovery.survive(question)

    def close(self) -> None:
        """Ends every process of the pipeline. Safe to call twice."""
        if not self._condition.closed:
            self._condition.closed = True
            self._target.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _raised(failure: OperationFailed) -> PipeError:
    """An operation that raised, as an error of the pipeline."""
    error = PipeError(failure.diagnostic())
    error.__cause__ = failure
    return error


def _merged(parts: Sequence[Mapping[int, Any]]) -> dict[int, Any]:
    """By stage; of copies, the first."""
    found = {stage: value for part in reversed(parts) for stage, value in part.items()}
    return {stage: found[stage] for stage in sorted(found)}
