"""Ray compiled graph: one actor a rank, one bind an operation, compiled once, executed once a step."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import ray
from ray.dag import DAGContext, DAGNode, InputNode, MultiOutputNode

from ..diagnostics import Diagnostic, PipeError
from ..ir.schedule import Schedule
from ..lower import lower
from ..lower.binds import BindPlan, loaded, plan_binds
from ..lower.call_order import call_order
from ..lower.program import Program
from ..runtime.failure import OperationFailed
from ..runtime.shapes import batch_bytes, largest_message
from ..runtime.spec import Batch, RankSpec
from ..simulate import simulate
from .crew import Crew
from .gloo_communicator import GlooCommunicator
from .own_order import compile_in_order
from .rank_actor import PackingActor, RankActor
from .ray_target import Outcome, RayTarget

__all__ = ["RayDagTarget", "bind_graph"]

HEADROOM = 4096
"""Bytes of a buffer beyond its tensors: what pickling adds."""

ACCELERATOR = "ray-accelerator"
"""The transport that edges between actors are on which messages are hinted."""

NEVER = 1e6
"""A time-out in seconds that no step reaches. Ray clamps -1 to 0 in places; the watchdog is ours."""

TEARDOWN = 2
"""Seconds an operation under way may take to end when the pipeline is closed, before it is killed."""


def bind_graph(plan: BindPlan, actors: Sequence[Any], transport: Any = None) -> DAGNode:
    """The Ray DAG of a plan; ``transport`` is the hint on tensor edges between actors, None for none."""
    with InputNode() as batch:
        nodes = {loaded(rank): actor.load.bind(batch, rank) for rank, actor in enumerate(actors)}
        for bind in plan.binds:
            method = getattr(actors[bind.rank], bind.method)
            constants: tuple[Any, ...] = (bind.operation.stage,)
            if bind.operation.microbatch is not None:
                constants += (bind.operation.microbatch, bind.target, bind.frees)
            node = method.bind(nodes[bind.source], *constants)
            if bind.target is not None and transport is not None:
                node = node.with_tensor_transport(transport=transport)
            nodes[bind.result] = node
        finished = [
            actor.finish.bind(*(nodes[name] for name in unread))
            for actor, unread in zip(actors, plan.unread, strict=True)
        ]
        return MultiOutputNode(finished)


class RayDagTarget(RayTarget):
    """Trains on Ray actors through one compiled graph."""

    name = "ray-dag"

    def __init__(
        self, schedule: Schedule, program: Program, specs: Sequence[RankSpec], timeout: float | None, transport: str
    ) -> None:
        try:
            self._plan = plan_binds(program)
        except ValueError as error:
            help_ = "use target `ray-program` or `local`"
            raise PipeError(Diagnostic("P702", f"target ray-dag: {error}", None, help_)) from error
        super().__init__(specs, timeout, transport == "accelerator")
        self._schedule = schedule
        self._transport = transport
        self._graph: Any = None

    def _start(self, batches: Sequence[Batch]) -> None:
        environment = {}
        largest = largest_message(self._specs, batches)
        if largest is not None:
            # Ray reads the size where a channel's writer lives; an argument would reach the driver only.
            size = str(largest + HEADROOM)
            environment["runtime_env"] = {"env_vars": {"RAY_CGRAPH_buffer_size_bytes": size}}
        hinted = self._on_gpus or self._transport == "gloo"
        crew = self._launch(RankActor if hinted else PackingActor, self._on_gpus, **environment)
        hint = self._hint(crew) if hinted and len(crew.actors) > 1 else None
        graph = bind_graph(self._plan, crew.actors, hint)
        options: dict[str, Any] = {
            "_submit_timeout": NEVER,
            "_buffer_size_bytes": batch_bytes(batches) + HEADROOM,
            "_max_inflight_executions": 1,
        }
        if hint is None:
            self._graph = graph.experimental_compile(**options)
        else:
            ordered = call_order(lower(self._schedule, ACCELERATOR, "event"), self._plan)
            self._graph = compile_in_order(graph, ordered, crew.actors, self._loss, **options)

    def _loss(self) -> str:
        """What Ray's own order of messages costs on accelerators, at the costs that the schedule declares."""
        theirs, ours = (simulate(self._schedule, None, ACCELERATOR, name).makespan for name in ("ray", "event"))
        return f"a step takes {theirs:g} where it could take {ours:g}, at the costs of the schedule"

    @property
    def _on_gpus(self) -> bool:
        return self._session.gpus and self._transport in ("auto", "accelerator")

    def _hint(self, crew: Crew) -> Any:
        """What tensor edges between actors carry on accelerators."""
        return GlooCommunicator(crew.actors) if self._transport == "gloo" else "accelerator"

    def _execute(self, crew: Crew, batches: Sequence[Batch]) -> Sequence[Outcome]:
        results = self._graph.execute(list(batches))
        # What get() returns are views on Ray's channels: copied before anything else happens.
        ended: list[OperationFailed | None] = [copy.deepcopy(result.get(timeout=NEVER)) for result in results]
        if any(failure is not None for failure in ended):
            crew.ask("drop")
            return ended
        if not batches[0].training:
            return crew.ask("evaluated")
        return self._kept(crew, self._specs[0].steps and batches[0].updates)

    def _kept(self, crew: Crew, steps: bool) -> Sequence[Outcome]:
        """All ranks are well: gradients count, those of copies and tied stages are summed, optimizers step."""
        # Calls on an actor run in their order, and wait for the results they take: none is waited for here.
        calls = [actor.keep.remote() for actor in crew.actors]
        if steps and any(spec.shared for spec in self._specs):
            parts = [actor.shared.remote() for actor in crew.actors]
            calls += [actor.take_shared.remote(*parts) for actor in crew.actors]
        clips = steps and self._specs[0].max_norm is not None
        reports = crew.ask("update", *([actor.squared_norm.remote() for actor in crew.actors] if clips else ()))
        ray.get(calls)
        return reports

    def _release(self) -> None:
        """Ends the graph, then the actors."""
        if self._graph is not None:
            context = DAGContext.get_current()
            patience, context.teardown_timeout = context.teardown_timeout, TEARDOWN
            # Actors that are killed cannot clean up behind them, so only where one may be stuck.
            self._graph.teardown(kill_actors=not self._between_steps)
            self._graph, context.teardown_timeout = None, patience
        super()._release()
