"""The reference target: one process executes the Program in its global order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..diagnostics import PipeError
from ..ir.operations import Kind
from ..lower.program import FORWARDS, Code, Instruction, Program
from ..runtime.checkpoint import read_replicas, write_rank
from ..runtime.failure import OperationFailed, no_start, where_raised
from ..runtime.message import Message
from ..runtime.rank import Rank
from ..runtime.report import RankReport, StepOutcome, in_turn
from ..runtime.spec import Batch, RankSpec
from .local_sums import LocalSums, Parts

__all__ = ["LocalTarget"]

_DIRECTION = {Code.SEND_F: Kind.F, Code.RECV_F: Kind.F, Code.SEND_B: Kind.B, Code.RECV_B: Kind.B}

_Address = tuple[Kind, int, int, int]
"""Direction, sending stage, receiving stage, microbatch."""


class LocalTarget:
    """Runs all ranks in this process, one instruction after the other. No Ray, no waiting."""

    name = "local"

    def __init__(self, program: Program, specs: Sequence[RankSpec]) -> None:
        self._program = list(program.in_order())
        self._forwards = [step for step in self._program if step[1].code in FORWARDS]
        self._ranks = [_started(spec) for spec in specs]
        parts: Parts = {}
        for rank in self._ranks:
            rank.updates.sums.connection = LocalSums(rank.number, parts)

    def run(self, steps: Sequence[Sequence[Batch]]) -> list[StepOutcome]:
        """One step after the other, up to the first in which an operation raises."""
        return in_turn(self.step, steps)

    def step(self, batches: Sequence[Batch]) -> list[RankReport]:
        """Executes the program once; the report of every rank.

        Raises OperationFailed; unless it was an optimizer that raised, nothing of the step stays.
        """
        for rank, batch in zip(self._ranks, batches, strict=True):
            rank.load(batch)
        training = batches[0].training
        with torch.random.fork_rng():
            self._execute_all(self._program if training else self._forwards)
        if training:
            self._keep()
        reports = [rank.report() for rank in self._ranks]
        if not training:
            self._drop()
        return reports

    def _execute_all(self, program: Sequence[tuple[int, Instruction]]) -> None:
        mail: dict[_Address, Message] = {}
        try:
            for number, instruction in program:
                self._execute(self._ranks[number], instruction, mail)
        except OperationFailed:
            self._drop()
            raise

    def _drop(self) -> None:
        for rank in self._ranks:
            rank.drop()

    def _keep(self) -> None:
        """All ranks are well: gradients count, those of copies and tied stages are summed, optimizers step."""
        for rank in self._ranks:
            rank.updates.keep()
        for rank in self._ranks:
            rank.updates.share()
        stepped = [rank for rank in self._ranks if rank.updates.steps]
        clips = any(rank.updates.clips for rank in stepped)
        norm = sum(rank.updates.squared_norm() for rank in stepped) if clips else None
        for rank in stepped:
            rank.update(norm)

    def _execute(self, rank: Rank, instruction: Instruction, mail: dict[_Address, Message]) -> None:
        code, stage, microbatch, other = (
            instruction.code,
            instruction.stage,
            instruction.microbatch,
            instruction.peer_stage,
        )
        if code is Code.FREE and microbatch is not None:
            rank.free(stage, microbatch)
        elif microbatch is None or other is None:
            rank.run(instruction.operation)
        elif code in (Code.SEND_F, Code.SEND_B):
            kind = _DIRECTION[code]
            mail[kind, stage, other, microbatch] = rank.send(kind, stage, other, microbatch)
        else:
            kind = _DIRECTION[code]
            rank.receive(kind, mail.pop((kind, other, stage, microbatch)))

    def state(self) -> list[dict[int, dict[str, Any]]]:
        return [rank.state() for rank in self._ranks]

    def gradients(self) -> list[dict[int, dict[str, torch.Tensor]]]:
        return [rank.gradients() for rank in self._ranks]

    def held(self) -> list[int]:
        return [rank.held() for rank in self._ranks]

    def save(self, folder: str) -> list[str]:
        """Writes the state of every rank; the digests of the files."""
        return [write_rank(rank.checkpoint(), folder, rank.number) for rank in self._ranks]

    def restore(self, folder: str) -> None:
        """Takes up what :meth:`save` wrote."""
        for rank in self._ranks:
            rank.restore(read_replicas(folder, rank.replica))

    def restart(self) -> None:
        """Nothing to do: a rank that died here took the driver along."""

    def close(self) -> None:
        """Drops the ranks."""
        self._ranks.clear()


def _started(spec: RankSpec) -> Rank:
    """The rank. Raises PipeError (P701) where the user's code keeps it from being made."""
    try:
        return Rank(spec)
    except Exception as error:
        raise PipeError(no_start(spec.rank, f"{type(error).__name__}: {error}", where_raised(error))) from error
