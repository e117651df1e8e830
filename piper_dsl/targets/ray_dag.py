"""Ray compiled graph: one actor a rank, one bind an operation, compiled once, executed once a step."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import ray
from ray.dag import DAGContext

from ..diagnostics import Diagnostic, PipeError
from ..ir.schedule import Schedule
from ..lower import lower
from ..lower.binds import plan_binds
from ..lower.call_order import call_order
from ..lower.program import Program
from ..runtime.resources import Resources
from ..runtime.shapes import batch_bytes, largest_message
from ..runtime.spec import Batch, RankSpec
from ..simulate import simulate
from .actions import pairs
from .bind_graph import bind_graph
from .crew import Crew, kill_all
from .gloo_communicator import GlooCommunicator
from .graph_channels import GraphChannels, serve
from .line import DRIVER
from .meeting import Meeting, has_lines
from .neighbours import Neighbours
from .own_order import compile_in_order
from .rank_actor import RankActor
from .ray_target import CONNECT, Outcome, RayTarget

__all__ = ["RayDagTarget"]

HEADROOM = 4096
"""Bytes of a buffer beyond its tensors: what pickling adds."""

ACCELERATOR = "ray-accelerator"
"""The transport that edges between actors are on which messages are hinted."""

NEVER = 1e6
"""A time-out in seconds that no step reaches. Ray clamps -1 to 0 in places; the watchdog is ours."""

TEARDOWN = 2
"""Seconds an operation under way may take to end when the pipeline is closed, before it is killed."""


class RayDagTarget(RayTarget):
    """Trains on Ray actors through one compiled graph."""

    name = "ray-dag"

    def __init__(
        self,
        schedule: Schedule,
        program: Program,
        specs: Sequence[RankSpec],
        timeout: float | None,
        transport: str,
        resources: Resources,
    ) -> None:
        self._binds = plan_binds(program)
        super().__init__(specs, timeout, resources.carried_by(transport))
        self._schedule = schedule
        self._program = program
        self._transport = transport
        if self._hinted:
            self._refuse_joints()
        self._graph: Any = None
        self._lines: Neighbours | None = None

    def _start(self, crew: Crew, batches: Sequence[Batch]) -> None:
        self._launch(crew, RankActor, **self._environment(batches))
        self._compile(crew, batch_bytes(batches) + HEADROOM)

    def _environment(self, batches: Sequence[Batch]) -> dict[str, Any]:
        """Ray's options for actors that use channels of Ray's, for accelerators or between nodes: how large these are.

        Ray reads that where a channel's writer lives; an argument would reach the driver only.
        """
        by_lines = has_lines() and len(ray.nodes()) == 1
        largest = None if by_lines and not self._hinted else largest_message(self._specs, batches)
        if largest is None:
            return {}
        return {"runtime_env": {"env_vars": {"RAY_CGRAPH_buffer_size_bytes": str(largest + HEADROOM)}}}

    def _compile(self, crew: Crew, buffer_bytes: int) -> None:
        """Binds the graph and compiles it; ``buffer_bytes`` are those of the driver's channels, if they are Ray's."""
        hint = self._hint(crew) if self._hinted and len(crew.actors) > 1 else None
        graph = bind_graph(self._binds, crew.actors, hint, self._channels(crew))
        options: dict[str, Any] = {
            "_submit_timeout": NEVER,
            "_buffer_size_bytes": buffer_bytes,
            "_max_inflight_executions": 1,
        }
        if hint is None:
            self._graph = graph.experimental_compile(**options)
        else:
            ordered = call_order(lower(self._schedule, ACCELERATOR, "event"), self._binds)
            self._graph = compile_in_order(graph, ordered, crew.actors, self._loss, **options)

    def _refuse_joints(self) -> None:
        """Raises PipeError (P702) for what accelerators do not carry."""
        if bind := self._binds.joint():
            what = "reads" if len(bind.sources) > 1 else "sends"
            message = f"{bind.operation} {what} more than one message between ranks; on accelerators a call carries one"
            help_ = "use transport `shared-memory`, or target `ray-program` or `local`"
            self._session.end()
            raise PipeError(Diagnostic("P702", f"target ray-dag: {message}", None, help_))

    def _channels(self, crew: Crew) -> GraphChannels:
        """What carries everything else. All who use it meet for that."""
        plan = self._plan(pairs(self._program), graph=secrets.token_hex(8))
        assert self._store is not None
        node = ray.get_runtime_context().get_node_id()
        with self._meeting(crew, plan), Meeting(DRIVER, self._store, node) as meeting:
            crew.ask("join", plan, timeout=CONNECT)
            self._lines = Neighbours(DRIVER, meeting.connect(meeting.near(range(plan.ranks))))
        serve(plan.graph, self._lines)
        return GraphChannels(plan.graph, {actor._actor_id.hex(): rank for rank, actor in enumerate(crew.actors)})

    def _loss(self) -> str:
        """What Ray's own order of messages costs on accelerators, at the costs that the schedule declares."""
        theirs, ours = (simulate(self._schedule, None, ACCELERATOR, name).makespan for name in ("ray", "event"))
        return f"a step takes {theirs:g} where it could take {ours:g}, at the costs of the schedule"

    @property
    def _hinted(self) -> bool:
        """Whether messages go through accelerators, or what stands for them in tests."""
        return self._session.gpus or self._transport == "gloo"

    def _hint(self, crew: Crew) -> Any:
        """What tensor edges between actors carry on accelerators."""
        return GlooCommunicator(crew.actors) if self._transport == "gloo" else "accelerator"

    def _execute(self, crew: Crew, steps: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Outcome]]:
        return (self._step(batches) for batches in steps)

    def _step(self, batches: Sequence[Batch]) -> Sequence[Outcome]:
        return [result.get(timeout=NEVER) for result in self._graph.execute(*batches)]

    def _release(self) -> None:
        """Ends the graph, then the actors."""
        if self._graph is not None and self._crew is not None:
            context = DAGContext.get_current()
            patience, context.teardown_timeout = context.teardown_timeout, TEARDOWN
            # Actors that are killed cannot clean up behind them, so only where one may be stuck. Where another died,
            # a thread of Ray's waits for that one, for ever, and a teardown waits for the thread.
            killing = threading.Timer(TEARDOWN, kill_all, (self._crew.actors,))
            if not self._between_steps:
                killing.start()
            if self._session.runs:
                self._graph.teardown(kill_actors=not self._between_steps)
            killing.cancel()
            self._graph, context.teardown_timeout = None, patience
        if self._lines is not None:
            self._lines.release()
            self._lines = None
        super()._release()
