"""The Ray instance a pipeline runs on: the caller's if there is one, else one of its own."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ray

from ..diagnostics import Diagnostic, PipeError
from ..runtime.resources import Resources
from .cluster import start_or_join
from .crew import kill_all
from .places import Places

__all__ = ["RaySession"]

_GOODBYE = 3.0
"""Seconds an actor gets to leave by itself, which lets Ray clean up behind it, before it is killed."""

_EXIT = 10.0
"""Seconds that a process which was killed may take to be gone."""

_LEAVING = 5
"""Seconds in which Ray knows, on a busy machine too, that what an ended pipeline held is free again."""

_RECOVERY = 60
"""The same after a death, which may be that of a node."""


class RaySession:
    """Starts Ray where nobody has, and ends it then; holds a place for every rank.

    Where ``RAY_ADDRESS`` names a cluster, that one is joined. Raises :class:`PipeError` (P714) where no cluster
    answers, and where CPUs or GPUs are missing: Ray itself would wait for ever.
    """

    def __init__(self, ranks: int, resources: Resources) -> None:
        # Ray logs, with tracebacks and from a thread of its own, what this package reports itself.
        logging.getLogger("ray.dag.compiled_dag_node").setLevel(logging.CRITICAL)
        self.owned = not ray.is_initialized()
        try:
            if self.owned:
                start_or_join(math.ceil(ranks * resources.num_cpus))
            if resources.num_gpus is None:
                resources = replace(resources, num_gpus=int(ray.cluster_resources().get("GPU", 0) >= ranks))
            self._places: Places | None = Places(ranks, resources, _LEAVING)
        except BaseException:
            self._end_ray()
            raise
        self._instance = _instance()
        self.gpus = resources.num_gpus != 0
        self._ranks, self._resources = ranks, resources

    @property
    def runs(self) -> bool:
        """Whether the Ray that this session began with still runs here, and not another, or none."""
        return ray.is_initialized() and _instance() == self._instance

    def refuse_if_gone(self) -> None:
        """Raises PipeError (P712) where Ray was shut down under the pipeline: who asks it would start another."""
        if not self.runs:
            help_ = "call `ray.shutdown` behind the pipeline's `with` block"
            raise PipeError(Diagnostic("P712", "Ray, on which the ranks ran, was shut down", None, help_))

    def options(self, rank: int) -> dict[str, Any]:
        """Ray's options for the actor of a rank, which give it its place.

        Raises PipeError (P714) where places were given back, and others have them now.
        """
        if self._places is None:
            self._places = Places(self._ranks, self._resources, _LEAVING)
        return self._places.options(rank)

    def give_back(self) -> None:
        """Gives the places back, until ranks start again."""
        places, self._places = self._places, None
        if places is not None:
            places.release()

    def renew(self) -> None:
        """New places for all ranks: those before may have been on a node that is gone."""
        self.give_back()
        self._places = Places(self._ranks, self._resources, _RECOVERY)

    def end_actors(self, actors: Sequence[Any], pids: Sequence[int], at_once: bool) -> None:
        """Ends actors; without goodbyes where it is to be ``at_once``, as one of them may be stuck."""
        if not self.runs:
            return
        farewells = [] if at_once else [actor.__ray_terminate__.remote() for actor in actors]
        if farewells:
            ray.wait(farewells, num_returns=len(farewells), timeout=_GOODBYE)
        kill_all(actors)
        _wait_for_exit(pids)

    def end(self) -> None:
        """Gives the places back, and ends Ray where it is this session's own."""
        if self.runs:
            self.give_back()
            self._end_ray()

    def _end_ray(self) -> None:
        if self.owned:
            ray.shutdown()


def _instance() -> tuple[str, str]:
    """What tells one start of Ray in this process from another."""
    context = ray.get_runtime_context()
    return context.gcs_address, context.get_job_id()


def _wait_for_exit(pids: Sequence[int]) -> None:
    """Until the processes are gone: they are killed, which takes its time where the machine is busy."""
    deadline = time.monotonic() + _EXIT
    while any(_runs(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        # Not there, or, on a cluster, the number of another user's process on this machine.
        return False
    return True
