"""One rank: its stages, and the messages that wait for them. Every target runs these same methods.

A step is a :meth:`Rank.load`, operations and messages, and, once every rank is known to be well, a
:meth:`Updates.keep` and :meth:`Rank.update`; where one is not, a :meth:`Rank.drop` on all of them. An OPT only
notes that its stage is to be stepped: what it changes, :meth:`Rank.update` changes. Nothing of a stage runs
between its OPT and the end of the step, so that is exact wherever OPT stands.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..diagnostics import Diagnostic, PipeError
from ..ir.operations import Kind, Operation
from .arity import wrong_count
from .clock import clock_of
from .failure import OperationFailed
from .loader import RankLoader
from .mail import Mail
from .message import Message
from .precision import Precision
from .replica import Replica, State
from .report import RankReport, StepLog
from .spec import Batch, RankSpec
from .stage import Stage
from .updates import Updates

__all__ = ["Rank"]

Tensors = tuple[torch.Tensor, ...]


class Rank:
    """Runs operations on the stages of one rank; buffers are keyed by (stage, microbatch)."""

    def __init__(self, spec: RankSpec) -> None:
        self.number = spec.rank
        self._spec = spec
        self.replica = Replica.of(spec.rank, spec.placement.ranks, spec.replicas)
        self._graph = spec.graph
        self._stages = {stage: self._stage(stage, module) for stage, module in spec.modules.items()}
        self.updates = Updates(spec, self._stages)
        self._batch = Batch(-1)
        self._unready: Exception | None = None
        self._loader = None if spec.loader is None else RankLoader(spec.loader, spec)
        self._mail = Mail()
        self._expected: dict[tuple[int, int], list[int]] = {}
        clock = clock_of(spec.device)
        self._mark = clock.mark
        self._log = StepLog(clock)
        self._doing: tuple[str, Operation | None, float]
        self._note("waiting for the first step")

    def _stage(self, stage: int, module: nn.Module) -> Stage:
        spec = self._spec
        return Stage(
            module.to(spec.device),
            loss_fn=None if spec.graph.successors[stage] else spec.loss_fn,
            scale=spec.scale,
            number=stage,
            seed=spec.seed,
            precision=Precision(spec.device, spec.autocast),
            trained=spec.trained,
            recomputed=frozenset(i for s, i in spec.recomputed if s == stage),
        )

    def _note(self, what: str, operation: Operation | None = None) -> None:
        self._doing = what, operation, time.monotonic()

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """What is done inside, between steps, is called so."""
        self._note(what)
        try:
            yield
        finally:
            self._note("waiting for the next step")

    def doing(self) -> str:
        """What the rank is doing, in words, and for how long. They are found here: operations are many."""
        what, operation, since = self._doing
        return f"{what}{operation or ''}, for {time.monotonic() - since:.1f} s"

    # --- a step ------------------------------------------------------------------------------

    def load(self, batch: Batch) -> None:
        """Starts a step with its data; whatever an unfinished step left behind is dropped.

        Never raises: what goes wrong, the first operation raises, since of what operations raise all ranks learn.
        """
        self._unready = None
        try:
            self._begin(batch)
        except Exception as error:
            self._unready = error

    def _begin(self, batch: Batch) -> None:
        self._batch = self._loaded(batch)
        self._note(f"waiting at the beginning of step {batch.step}")
        self._mail.clear()
        self._expected.clear()
        self._log.clear()
        self.updates.begin(batch.updates)
        for stage in self._stages.values():
            stage.begin(batch.step, batch.training)

    def _loaded(self, batch: Batch) -> Batch:
        """The batch with its data, which the rank draws where it has a loader for it."""
        if batch.drawn is None or self._loader is None:
            return batch
        self._note(f"drawing the batch of step {batch.step}")
        return self._loader.loaded(batch)

    def drop(self) -> None:
        """Some rank did not, or the step only evaluates: it leaves no trace."""
        self._note(f"done with step {self._batch.step}")
        # Where a step could not begin, nothing ran that could be undone.
        for stage in self._stages.values() if self._unready is None else ():
            stage.undo()
        self.updates.drop()

    def update(self, squared_norm: float | None = None) -> None:
        """Steps the optimizers of the stages that met their OPT; ``squared_norm`` is that of all ranks together.

        Raises :class:`OperationFailed` for what an optimizer raises.
        """
        for stage, entry in self.updates.due(squared_norm):
            operation = Operation(Kind.OPT, stage)
            start = self._mark()
            self._note("", operation)
            try:
                self.updates.step(stage)
            except Exception as error:
                raise OperationFailed.wrap(self.number, operation, error) from error
            self._log.correct(entry, start)

    def report(self) -> RankReport:
        """The losses and what ran when; ends a step."""
        losses = {(s, i): float(x) for s, stage in self._stages.items() for i, x in stage.losses.items()}
        self._note(f"done with step {self._batch.step}")
        return self._log.report(losses, self.updates.norm)

    # --- operations --------------------------------------------------------------------------

    def run(self, operation: Operation) -> None:
        """Runs one compute, optimizer or parameter operation.

        Raises :class:`OperationFailed`, which names rank and operation, for whatever it raises.
        """
        start = self._mark()
        self._note("", operation)
        try:
            if self._unready is not None:
                raise self._unready
            self._methods[operation.kind](self, operation.stage, operation.microbatch)
        except Exception as error:
            raise OperationFailed.wrap(self.number, operation, error) from error
        entry = self._log.add(operation, start, self._mark())
        if operation.kind is Kind.OPT:
            self.updates.note(operation.stage, entry)
        self._note("waiting after ", operation)

    def skip(self, operation: Operation) -> None:
        """What is left of an operation where the step has failed: what all copies of a stage do together."""
        if operation.kind is Kind.REDUCE_GRAD:
            self.updates.reduce(operation.stage)

    def forward(self, stage: int, microbatch: int) -> None:
        """F: the module on the outputs of its predecessors, or on the microbatch itself."""
        if self._graph.predecessors[stage]:
            messages = self._mail.take(Kind.F, stage, microbatch, self._graph.predecessors[stage])
            inputs = tuple(x for message in messages for x in message.tensors)
            needs_grad = [flag for message in messages for flag in message.needs_grad]
            self._expected[stage, microbatch] = [sum(message.needs_grad) for message in messages]
        else:
            inputs = self._on_device(self._batch.inputs[stage, microbatch])
            needs_grad = [False] * len(inputs)
        runner = self._stages[stage]
        target = self._batch.targets.get((stage, microbatch))
        try:
            outputs, flags = runner.forward(microbatch, inputs, needs_grad, target and self._on_device(target))
        except TypeError as error:
            if said := wrong_count(runner.module, len(inputs), self._graph.predecessors[stage]):
                raise ValueError(said) from error
            raise
        for successor in self._graph.successors[stage]:
            self._deliver(Kind.F, self._message(stage, successor, microbatch, outputs, flags))

    def _on_device(self, tensors: Tensors) -> Tensors:
        return tuple(x.to(self._spec.device) for x in tensors)

    def backward(self, stage: int, microbatch: int) -> None:
        """B: parameter gradients accumulate, input gradients go to the predecessors."""
        gradients = self._stages[stage].backward(microbatch, self._gradients(stage, microbatch))
        self._return_gradients(stage, microbatch, gradients)

    def backward_input(self, stage: int, microbatch: int) -> None:
        """I: input gradients go to the predecessors."""
        gradients = self._stages[stage].backward_input(microbatch, self._gradients(stage, microbatch))
        self._return_gradients(stage, microbatch, gradients)

    def backward_weight(self, stage: int, microbatch: int) -> None:
        """W: parameter gradients accumulate."""
        self._stages[stage].backward_weight(microbatch)

    def recompute(self, stage: int, microbatch: int) -> None:
        """R: the forward once more."""
        self._stages[stage].recompute(microbatch)

    def reduce_grad(self, stage: int, microbatch: None = None) -> None:
        """REDUCE_GRAD: the gradients of a stage are on their way to be summed over its copies."""
        self.updates.reduce(stage)

    def _nothing(self, stage: int, microbatch: None = None) -> None:
        """OPT has nothing to do yet; nor have UNSHARD and RESHARD, as every copy of a stage holds all of it."""

    _methods: Mapping[Kind, Callable[..., None]] = {
        Kind.F: forward,
        Kind.B: backward,
        Kind.I: backward_input,
        Kind.W: backward_weight,
        Kind.R: recompute,
        Kind.OPT: _nothing,
        Kind.REDUCE_GRAD: reduce_grad,
        Kind.UNSHARD: _nothing,
        Kind.RESHARD: _nothing,
    }

    def free(self, stage: int, microbatch: int) -> None:
        """FREE: drops what is held of a microbatch."""
        self._stages[stage].free(microbatch)

    # --- messages ----------------------------------------------------------------------------

    def send(self, kind: Kind, stage: int, target: int, microbatch: int) -> Message:
        """The output (F) or the input gradients (B) of ``stage`` for a stage on another rank; it leaves this rank."""
        return self._mail.collect(kind, stage, target, microbatch)

    def receive(self, kind: Kind, message: Message) -> None:
        """Takes in a message from another rank. Raises ValueError for one of another step."""
        if message.step != self._batch.step:
            raise ValueError(f"a message of step {message.step} arrived in step {self._batch.step}")
        self._mail.store(kind, message)

    def _message(self, source: int, target: int, microbatch: int, tensors: Tensors, flags: tuple[bool, ...]) -> Message:
        return Message(self._batch.step, source, target, microbatch, tensors, flags)

    def _deliver(self, kind: Kind, message: Message) -> None:
        """Local messages wait for their stage, those for other ranks to be sent."""
        here = self._spec.placement(message.target, message.microbatch) == self.number
        (self._mail.store if here else self._mail.post)(kind, message)

    def _gradients(self, stage: int, microbatch: int) -> Tensors | None:
        """The gradients of a stage's outputs, summed over its successors; None where it has a loss."""
        successors = self._graph.successors[stage]
        if not successors:
            return None
        messages = self._mail.take(Kind.B, stage, microbatch, successors)
        parts = zip(*(message.tensors for message in messages), strict=True)
        return tuple(sum(part[1:], start=part[0]) for part in parts)

    def _return_gradients(self, stage: int, microbatch: int, gradients: Tensors) -> None:
        """Splits the input gradients among the predecessors, as their outputs were joined."""
        rest = list(gradients)
        counts = self._expected.pop((stage, microbatch), [])
        for predecessor, count in zip(self._graph.predecessors[stage], counts, strict=True):
            own, rest = tuple(rest[:count]), rest[count:]
            self._deliver(Kind.B, self._message(stage, predecessor, microbatch, own, ()))

    # --- state -------------------------------------------------------------------------------

    def state(self) -> dict[int, dict[str, Any]]:
        """Copies of the state dicts of the stages' modules, on the CPU."""
        return {s: {k: _copied(v) for k, v in r.module.state_dict().items()} for s, r in self._stages.items()}

    def checkpoint(self) -> State:
        """By stage: everything that the next steps depend on, and the first replica does not save for this one."""
        state = {s: {"module": r.module.state_dict(), **self.updates.state(s)} for s, r in self._stages.items()}
        buffers = {
            s: [k for k, _ in r.module.named_buffers() if k in state[s]["module"]] for s, r in self._stages.items()
        }
        return self.replica.kept(state, buffers)

    def restore(self, state: State) -> None:
        """Takes up what :meth:`checkpoint` gave, all replicas together.

        Raises PipeError (P716) where that is of other optimizers or schedulers.
        """
        notes = tuple(f"stage {s}: {said}" for s in self._stages for said in self.updates.differences(s, state[s]))
        if notes:
            message = f"the checkpoint of rank {self.number} was written with another optimizer or scheduler"
            help_ = "use those it was written with, or train anew in another folder"
            raise PipeError(Diagnostic("P716", message, None, help_, notes=notes))
        for number, stage in self._stages.items():
            stage.module.load_state_dict(state[number]["module"])
            self.updates.restore(number, state[number])

    def gradients(self) -> dict[int, dict[str, torch.Tensor]]:
        """Copies of the gradients accumulated so far, by stage and parameter name, on the CPU."""
        return {
            s: {k: _copied(p.grad) for k, p in r.module.named_parameters() if p.grad is not None}
            for s, r in self._stages.items()
        }

    def held(self) -> int:
        """How many microbatches the stages still hold, all together; 0 between steps."""
        return sum(runner.held for runner in self._stages.values())


def _copied(value: Any) -> Any:
    """A tensor that no later step changes; what else a state dict holds as it is."""
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value
