"""Ray actors that run the Program by themselves: one call a rank and step, tensors from peer to peer.

The driver is not in the loop. Every actor has its whole Program; torch.distributed moves the tensors (gloo
on CPUs; NCCL on GPUs, with a communicator for every directed pair of ranks).
"""

from __future__ import annotations

from collections.abc import Sequence

import ray
from ray.exceptions import RayError
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ..diagnostics import Diagnostic, PipeError
from ..lower.program import Code, Program
from ..runtime.batch import signature
from ..runtime.spec import Batch, RankSpec
from .actions import meets
from .crew import Crew, last_line
from .program_actor import ProgramActor
from .ray_target import Outcome, RayTarget
from .wire import WirePlan

__all__ = ["RayProgramTarget"]

CONNECT = 120.0
"""Seconds the ranks may take to find each other."""

LOCALHOST = "127.0.0.1"


class RayProgramTarget(RayTarget):
    """Trains on Ray actors, each of which interprets its part of the Program."""

    name = "ray-program"

    def __init__(self, program: Program, specs: Sequence[RankSpec], timeout: float | None) -> None:
        super().__init__(specs, timeout, needs_gpus=False)
        if self._session.gpus and not meets(program):
            self._session.end()
            message = "target ray-program on GPUs: messages between two ranks arrive in the order they are sent"
            help_ = "write every RECV behind its SEND in one order for all ranks, or leave the transfers out"
            raise PipeError(Diagnostic("P702", message, None, help_))
        self._program = program
        self._store: TCPStore | None = None

    def _start(self, batches: Sequence[Batch]) -> None:
        crew = self._launch(ProgramActor, self._session.gpus)
        host = LOCALHOST if len(ray.nodes()) == 1 else ray.util.get_node_ip_address()
        # The ranks meet at a store, which lives here as long as they do.
        self._store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
        try:
            crew.ask("connect", self._program, self._plan(host, self._store.port), timeout=CONNECT)
        except RayError as error:
            message = f"the ranks cannot reach each other at {host}: {last_line(error)}"
            raise PipeError(Diagnostic("P714", message)) from error

    def _plan(self, host: str, port: int) -> WirePlan:
        summing = {group.ranks for spec in self._specs for group in spec.shared}
        return WirePlan(
            host=host,
            port=port,
            ranks=len(self._specs),
            device="cuda" if self._session.gpus else "cpu",
            pairs=_pairs(self._program),
            summing=tuple(sorted(summing)),
            ordered=self._session.gpus,
        )

    def _execute(self, crew: Crew, batches: Sequence[Batch]) -> Sequence[Outcome]:
        shapes = signature(batches)
        calls = zip(crew.actors, batches, strict=True)
        outcomes: list[Outcome] = ray.get([actor.step.remote(batch, shapes) for actor, batch in calls])
        return outcomes


def _pairs(program: Program) -> tuple[tuple[int, int], ...]:
    """Sender and receiver of every link that the program uses."""
    sends = ((r, i.peer) for r, i in program.in_order() if i.code in (Code.SEND_F, Code.SEND_B))
    return tuple(sorted({(rank, peer) for rank, peer in sends if peer is not None}))
