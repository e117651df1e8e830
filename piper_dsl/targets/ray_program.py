"""Ray actors that run the Program by themselves: one call a rank and step, tensors from peer to peer.

The driver is not in the loop. Every actor has its whole Program; torch.distributed moves the tensors (gloo
on CPUs of several machines; NCCL on GPUs, with a communicator for every directed pair of ranks, or for every pair).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import ray

from ..diagnostics import Diagnostic, PipeError
from ..lower.program import Program
from ..runtime.batch import signature
from ..runtime.resources import Resources
from ..runtime.spec import Batch, RankSpec
from .actions import meets, pairs
from .crew import Crew
from .parts import from_parts, to_parts
from .program_actor import ProgramActor
from .ray_target import CONNECT, Outcome, RayTarget

__all__ = ["RayProgramTarget"]


class RayProgramTarget(RayTarget):
    """Trains on Ray actors, each of which interprets its part of the Program."""

    name = "ray-program"

    def __init__(
        self,
        program: Program,
        specs: Sequence[RankSpec],
        timeout: float | None,
        transport: str,
        resources: Resources,
    ) -> None:
        super().__init__(specs, timeout, resources.carried_by(transport))
        if self._session.gpus and not meets(program):
            self._session.end()
            message = "target ray-program on GPUs: messages between two ranks arrive in the order they are sent"
            help_ = "write every RECV behind its SEND in one order for all ranks, or leave the transfers out"
            raise PipeError(Diagnostic("P702", message, None, help_))
        self._program = program
        on_gpus = "direction" if transport == "auto" else transport
        self._transport = on_gpus if self._session.gpus else "buffered"

    def _start(self, crew: Crew, batches: Sequence[Batch]) -> None:
        self._launch(crew, ProgramActor)
        plan = self._plan(pairs(self._program), transport=self._transport)
        with self._meeting(crew, plan):
            crew.ask("connect", self._program, plan, timeout=CONNECT)

    def _execute(self, crew: Crew, steps: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Outcome]]:
        shapes = [signature(batches) for batches in steps]
        calls = zip(crew.actors, zip(*steps, strict=True), strict=True)
        answers = ray.get([actor.steps.remote(*to_parts((own, shapes))) for actor, own in calls])
        return zip(*(from_parts([answer]) for answer in answers), strict=True)
