"""The Program as binds of a Ray DAG: one call on an actor for every operation, in the global order.

Plain data that knows nothing of Ray. The target binds it, the python target prints it. What Ray's
compiled graphs carry decides the shape: at most one message comes in per call and it comes from
another rank; forward to backward, and stage to stage on one rank, go through the actor's state; a
call that gets no message takes the token of an earlier call on its actor, so that every call has an
input and none is left unread; what is still unread ends in the rank's `finish`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.operations import Kind, Operation
from ..plan.tokens import Call, thread_tokens
from .program import Code, Instruction, Program

__all__ = ["METHODS", "Bind", "BindPlan", "plan_binds"]

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

_CALLED = frozenset(Code(kind) for kind in METHODS)


@dataclass(frozen=True)
class Bind:
    """One call: ``result = rank.method(source, stage, microbatch, …)``.

    ``source`` is the result it reads, a message from another rank where ``receives`` is true, else a
    token. ``target`` is the stage on another rank that reads ``result``, None where it is a token.
    ``frees``: the microbatch's buffers are dropped after the call.
    """

    result: str
    rank: int
    operation: Operation
    source: str
    receives: bool
    target: int | None
    frees: bool

    @property
    def method(self) -> str:
        return METHODS[self.operation.kind]


@dataclass(frozen=True)
class BindPlan:
    """All binds in the global order; ``unread[r]`` are the tokens that end in rank ``r``'s finish."""

    binds: tuple[Bind, ...]
    unread: tuple[tuple[str, ...], ...]


def loaded(rank: int) -> str:
    """The name of the token that says a rank has its data."""
    return f"loaded{rank}"


def plan_binds(program: Program) -> BindPlan:
    """The binds of a program.

    Raises ValueError for an operation with more than one message in or out, which one call cannot
    carry: a stage graph that joins or splits across ranks.
    """
    incoming, outgoing = _messages(program)
    freed = {(i.stage, i.microbatch): i for _, i in program.in_order() if i.code is Code.FREE}
    last = _last_before_free(program)
    calls = [(rank, i.operation) for rank, i in program.in_order() if i.code in _CALLED]
    names = [_on_rank(program, operation, rank) for rank, operation in calls]
    called = [_call(name, *call, incoming, outgoing) for name, call in zip(names, calls, strict=True)]
    threaded = thread_tokens(called, loaded, program.ranks)
    binds = []
    for name, (rank, operation), source in zip(names, calls, threaded.sources, strict=True):
        key = (operation.stage, operation.microbatch)
        bind = Bind(
            result=name,
            rank=rank,
            operation=operation,
            source=source,
            receives=operation in incoming,
            target=outgoing.get(operation),
            frees=key in freed and last[key] == operation,
        )
        binds.append(bind)
    return BindPlan(tuple(binds), threaded.unread)


def _call(
    name: str, rank: int, operation: Operation, incoming: dict[Operation, Operation], outgoing: dict[Operation, int]
) -> Call[str]:
    message = incoming.get(operation)
    return Call(rank, name, None if message is None else _name(message), operation in outgoing)


def _name(operation: Operation) -> str:
    microbatch = "" if operation.microbatch is None else operation.microbatch
    return f"{operation.kind.name.lower()}{microbatch}_s{operation.stage}"


def _on_rank(program: Program, operation: Operation, rank: int) -> str:
    """The name of a result. An operation of a whole stage runs on every rank that has a copy of it."""
    copied = operation.microbatch is None and len(program.placement.copies[operation.stage]) > 1
    return f"{_name(operation)}_r{rank}" if copied else _name(operation)


def _messages(program: Program) -> tuple[dict[Operation, Operation], dict[Operation, int]]:
    """By operation: the one whose message it reads, and the stage that its own message goes to."""
    incoming: dict[Operation, Operation] = {}
    outgoing: dict[Operation, int] = {}
    split = {(i.stage, i.microbatch) for _, i in program.in_order() if i.code is Code.I}
    for _, instruction in program.in_order():
        if instruction.code not in (Code.SEND_F, Code.SEND_B):
            continue
        producer, consumer = _ends(instruction, split)
        if producer in outgoing or consumer in incoming:
            which = f"{consumer} reads" if consumer in incoming else f"{producer} sends"
            raise ValueError(f"{which} more than one message between ranks; a Ray DAG call carries one")
        outgoing[producer], incoming[consumer] = consumer.stage, producer
    return incoming, outgoing


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
