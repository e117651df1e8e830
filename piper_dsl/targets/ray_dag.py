"""Ray compiled graph: one actor a rank, one bind an operation, compiled once, executed once a step."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import replace
from pickle import PicklingError
from typing import Any

import ray
import torch
from ray.dag import DAGContext, DAGNode, InputNode, MultiOutputNode
from ray.exceptions import RayError

from ..diagnostics import Diagnostic, PipeError
from ..lower.binds import BindPlan, loaded, plan_binds
from ..lower.program import Program
from ..runtime.failure import OperationFailed
from ..runtime.report import RankReport
from ..runtime.shapes import batch_bytes, largest_message
from ..runtime.spec import Batch, RankSpec
from .gloo_communicator import GlooCommunicator
from .rank_actor import RankActor
from .ray_session import RaySession
from .watchdog import Watchdog

__all__ = ["RayDagTarget", "bind_graph"]

HEADROOM = 4096
"""Bytes of a buffer beyond its tensors: what pickling adds."""

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


class RayDagTarget:
    """Trains on Ray actors through one compiled graph. Starts them with the first step's shapes."""

    name = "ray-dag"

    def __init__(self, program: Program, specs: Sequence[RankSpec], timeout: float | None, transport: str) -> None:
        try:
            self._plan = plan_binds(program)
        except ValueError as error:
            raise PipeError(Diagnostic("P702", f"target ray-dag: {error}", None, "use target `local`")) from error
        self._specs = list(specs)
        self._session = RaySession(len(specs), transport == "accelerator")
        self._transport = transport
        self._watchdog = Watchdog(timeout)
        self._actors: list[Any] = []
        self._pids: list[int] = []
        self._graph: Any = None
        self._between_steps = True

    def step(self, batches: Sequence[Batch]) -> list[RankReport]:
        """Executes the graph once; the report of every rank.

        Raises OperationFailed for an operation that raised, PipeError for a rank that died or a step
        that took longer than the watchdog allows.
        """
        if self._graph is None:
            self._start(batches)
        self._between_steps = False
        try:
            with self._watchdog.over(self._actors) as watch:
                results = self._graph.execute(list(batches))
                # What get() returns are views on Ray's channels: copied before anything else happens.
                ended: list[OperationFailed | None] = [copy.deepcopy(result.get(timeout=NEVER)) for result in results]
                reports = self._settled([failure for failure in ended if failure is not None])
        except RayError as error:
            raise PipeError(watch.verdict or self._death(error)) from error
        self._between_steps = True
        failed = [report for report in reports if isinstance(report, OperationFailed)]
        if failed:
            raise failed[0]
        return [report for report in reports if isinstance(report, RankReport)]

    def _settled(self, failed: list[OperationFailed]) -> list[OperationFailed | RankReport]:
        """Ends a step on all ranks alike: kept and stepped where nothing failed, else dropped."""
        if failed:
            ray.get([actor.drop.remote() for actor in self._actors])
            return [failed[0]]
        # Calls on an actor run in their order, so only the last is waited for.
        for actor in self._actors:
            actor.keep.remote()
        reports: list[OperationFailed | RankReport] = ray.get([actor.update.remote() for actor in self._actors])
        return reports

    def _start(self, batches: Sequence[Batch]) -> None:
        gpus = self._on_gpus
        largest = largest_message(self._specs, batches)
        options: dict[str, Any] = {"num_cpus": 1, "num_gpus": 1 if gpus else 0, "max_restarts": 0}
        if largest is not None:
            # Ray reads the size where a channel's writer lives; an argument would reach the driver only.
            size = str(largest + HEADROOM)
            options["runtime_env"] = {"env_vars": {"RAY_CGRAPH_buffer_size_bytes": size}}
        device = "cuda" if gpus else "cpu"
        specs = [replace(spec, device=device) for spec in self._specs]
        self._actors = [_sent(spec, options) for spec in specs]
        answers = [_started(rank, actor) for rank, actor in enumerate(self._actors)]
        self._pids = [pid for pid, _ in answers]
        for rank, (_, failure) in enumerate(answers):
            if failure is not None:
                message, places = failure
                raise PipeError(Diagnostic("P701", f"rank {rank} could not start: {message}", notes=places))
        graph = bind_graph(self._plan, self._actors, self._hint())
        self._graph = graph.experimental_compile(
            _submit_timeout=NEVER,
            _buffer_size_bytes=batch_bytes(batches) + HEADROOM,
            _max_inflight_executions=1,
        )

    @property
    def _on_gpus(self) -> bool:
        return self._session.gpus and self._transport in ("auto", "accelerator")

    def _hint(self) -> Any:
        """What tensor edges between actors carry; None for shared memory, and where there is no such edge."""
        if len(self._actors) < 2:
            return None
        if self._transport == "gloo":
            return GlooCommunicator(self._actors)
        return "accelerator" if self._on_gpus else None

    def _death(self, error: RayError) -> Diagnostic:
        """Which ranks are gone, and what the others were doing."""
        alive = {}
        for rank, actor in enumerate(self._actors):
            try:
                alive[rank] = ray.get(actor.where.remote(), timeout=2.0)
            except (RayError, TimeoutError):
                continue
        dead = [rank for rank in range(len(self._actors)) if rank not in alive]
        notes = tuple(f"rank {rank}: {doing}" for rank, doing in alive.items())
        if not dead:
            return Diagnostic("P713", f"the graph of the ranks broke: {_first_line(error)}", notes=notes)
        names = ", ".join(f"rank {rank} (process {self._pids[rank]})" for rank in dead)
        return Diagnostic("P713", f"{names} died during the step", notes=notes)

    def _ask(self, method: str) -> list[Any]:
        if not self._actors:
            message = "the ranks start with the first step; there is nothing to ask them yet"
            raise PipeError(Diagnostic("P712", message))
        return copy.deepcopy(ray.get([getattr(actor, method).remote() for actor in self._actors]))

    def state(self) -> list[dict[int, dict[str, Any]]]:
        return self._ask("state")

    def gradients(self) -> list[dict[int, dict[str, torch.Tensor]]]:
        return self._ask("gradients")

    def held(self) -> list[int]:
        return self._ask("held")

    def close(self) -> None:
        """Ends the graph and the actors; a step that is under way is not waited for."""
        if self._graph is not None:
            context = DAGContext.get_current()
            patience, context.teardown_timeout = context.teardown_timeout, TEARDOWN
            # Actors that are killed cannot clean up behind them, so only where one may be stuck.
            self._graph.teardown(kill_actors=not self._between_steps)
            self._graph, context.teardown_timeout = None, patience
        self._session.end(self._actors, self._pids)
        self._actors = []


def _sent(spec: RankSpec, options: dict[str, Any]) -> Any:
    """The actor of a rank. Raises PipeError (P701) for what cannot be sent to another process."""
    try:
        return RankActor.options(**options).remote(spec)
    except (TypeError, PicklingError) as error:
        stages = ", ".join(map(str, spec.modules))
        why = _first_line(error.__cause__ or error)
        message = f"rank {spec.rank} (stages {stages}) cannot be sent to its process: {why}"
        help_ = "modules, loss and optimizer are pickled; make locks, files and the like where they are used"
        raise PipeError(Diagnostic("P701", message, None, help_)) from error


def _started(rank: int, actor: Any) -> Any:
    """What a rank says of its start. Raises PipeError (P714) where its process never got so far."""
    try:
        return ray.get(actor.started.remote())
    except RayError as error:
        # Ray's text is a traceback in colours; what was raised stands on its last line.
        lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines() if line.strip()]
        raise PipeError(Diagnostic("P714", f"rank {rank} could not start: {lines[-1]}")) from error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
