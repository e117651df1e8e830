"""The Program as binds of a Ray DAG: one call on an actor for every operation, in the global order.

Plain data that knows nothing of Ray. The target binds it, the python target prints it. What Ray's compiled graphs
carry decides the shape: messages come from other ranks; forward to backward, and stage to stage on one rank, go
through the actor's state; a call that gets no message takes the token of an earlier call on its actor, so that every
call has an input and none is left unread; what is still unread ends in the rank's `conclude`. A call that has messages
for several stages returns one for each. On accelerators a call can read one message and send one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.operations import Kind, Operation
from ..plan.tokens import Call, thread_tokens
from .program import Code, Instruction, Program

__all__ = ["ENDING", "METHODS", "Bind", "BindPlan", "plan_binds"]

METHODS = {
    Kind.F: "forward",
    Kind.B: "backward",
    Kind.I: "backward_input",
    Kind.W: "backward_weight",
    Kind.R: "recompute",
    Kind.OPT: "optimizer_step",
    Kind.REDUCE_GRAD: "reduce_grad",
    Kind.UNSHARD: "unshard",
    Kind.RESHARD: "reshard",
}
"""The actor method of every kind."""

ENDING = "conclude"
"""The method that ends a step; it takes what nobody else on its rank has read."""

_CALLED = frozenset(Code(kind) for kind in METHODS)


@dataclass(frozen=True)
class Bind:
    """One call: ``results = rank.method(stage, microbatch, …, *sources)``.

    ``sources`` are the results it reads: messages from other ranks where ``receives`` is true, else one token.
    ``targets`` are the stages on other ranks that read its results, one each; where there is none, its one result is a
    token. ``frees``: the microbatch's buffers are dropped after the call.
    """

    name: str
    rank: int
    operation: Operation
    sources: tuple[str, ...]
    receives: bool
    targets: tuple[int, ...]
    frees: bool

    @property
    def results(self) -> tuple[str, ...]:
        return _results(self.name, self.targets)

    @property
    def method(self) -> str:
        return METHODS[self.operation.kind]

    @property
    def constants(self) -> tuple[Any, ...]:
        """What its method takes before the sources."""
        stage, microbatch = self.operation.stage, self.operation.microbatch
        return (stage,) if microbatch is None else (stage, microbatch, self.targets, self.frees)


@dataclass(frozen=True)
class BindPlan:
    """All binds in the global order; ``unread[r]`` are the tokens that end in rank ``r``'s conclude."""

    binds: tuple[Bind, ...]
    unread: tuple[tuple[str, ...], ...]

    def joint(self) -> Bind | None:
        """A call that reads or sends more than one message, if there is one."""
        return next((bind for bind in self.binds if len(bind.sources) > 1 or len(bind.targets) > 1), None)


def loaded(rank: int) -> str:
    """The name of the token that says a rank has its data."""
    return f"loaded{rank}"


def plan_binds(program: Program) -> BindPlan:
    """The binds of a program."""
    messages = _Messages(program)
    freed = {(i.stage, i.microbatch) for _, i in program.in_order() if i.code is Code.FREE}
    last = _last_before_free(program)
    calls = [(rank, i.operation) for rank, i in program.in_order() if i.code in _CALLED]
    names = [_on_rank(program, operation, rank) for rank, operation in calls]
    called = [messages.call(name, *call) for name, call in zip(names, calls, strict=True)]
    threaded = thread_tokens(called, loaded, program.ranks)
    binds = []
    for name, (rank, operation), sources in zip(names, calls, threaded.sources, strict=True):
        key = (operation.stage, operation.microbatch)
        bind = Bind(
            name=name,
            rank=rank,
            operation=operation,
            sources=sources,
            receives=operation in messages.incoming,
            targets=tuple(messages.outgoing.get(operation, ())),
            frees=key in freed and last[key] == operation,
        )
        binds.append(bind)
    return BindPlan(tuple(binds), threaded.unread)


def _results(name: str, targets: Sequence[int]) -> tuple[str, ...]:
    """The names of what a call returns: its own, or one for each of several stages."""
    return (name,) if len(targets) < 2 else tuple(f"{name}_to{target}" for target in targets)


def _name(operation: Operation) -> str:
    microbatch = "" if operation.microbatch is None else operation.microbatch
    return f"{operation.kind.name.lower()}{microbatch}_s{operation.stage}"


def _on_rank(program: Program, operation: Operation, rank: int) -> str:
    """The name of a result. An operation of a whole stage runs on every rank that has a copy of it."""
    copied = operation.microbatch is None and len(program.placement.copies[operation.stage]) > 1
    return f"{_name(operation)}_r{rank}" if copied else _name(operation)


class _Messages:
    """By operation: the names of the messages that it reads, and the stages that its own go to."""

    def __init__(self, program: Program) -> None:
        self.incoming: dict[Operation, list[str]] = {}
        self.outgoing: dict[Operation, list[int]] = {}
        split = {(i.stage, i.microbatch) for _, i in program.in_order() if i.code is Code.I}
        sends = [i for _, i in program.in_order() if i.code in (Code.SEND_F, Code.SEND_B)]
        ends = [_ends(send, split) for send in sends]
        for producer, consumer in ends:
            self.outgoing.setdefault(producer, []).append(consumer.stage)
        for producer, consumer in ends:
            targets = self.outgoing[producer]
            name = _results(_name(producer), targets)[targets.index(consumer.stage) if len(targets) > 1 else 0]
            self.incoming.setdefault(consumer, []).append(name)

    def call(self, name: str, rank: int, operation: Operation) -> Call[str]:
        return Call(rank, name, tuple(self.incoming.get(operation, ())), operation in self.outgoing)


def _ends(send: Instruction, split: set[tuple[int, int | None]]) -> tuple[Operation, Operation]:
    """The operations that produce and consume what a SEND moves."""
    assert send.peer_stage is not None
    return _compute(send, send.stage, split), _compute(send, send.peer_stage, split)


def _compute(send: Instruction, stage: int, split: set[tuple[int, int | None]]) -> Operation:
    """The operation of ``stage`` at one end of a SEND."""
    backward = Kind.I if (stage, send.microbatch) in split else Kind.B
    return Operation(Kind.F if send.code is Code.SEND_F else backward, stage, send.microbatch)


def _last_before_free(program: Program) -> dict[tuple[int, int | None], Operation]:
    """The last operation on every (stage, microbatch): the one its FREE follows."""
    last: dict[tuple[int, int | None], Operation] = {}
    for _, instruction in program.in_order():
        if instruction.code in (Code.F, Code.B, Code.I, Code.W, Code.R):
            last[instruction.stage, instruction.microbatch] = instruction.operation
    return last
