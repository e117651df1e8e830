"""The Ray instance a pipeline runs on: the caller's if there is one, else one of its own."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import Any

import ray

from ..diagnostics import Diagnostic, PipeError

__all__ = ["RaySession"]

_GOODBYE = 3.0
"""Seconds an actor gets to leave by itself, which lets Ray clean up behind it, before it is killed."""

_EXIT = 10.0
"""Seconds that a process which was killed may take to be gone."""

_LEAVING = 1.5
"""Seconds until Ray knows that what an ended actor held is free again, with some to spare."""


class RaySession:
    """Starts Ray where nobody has, and ends it then; checks that every rank finds a place.

    Raises :class:`PipeError` (P714) where CPUs or GPUs are missing: Ray itself would wait for ever.
    """

    def __init__(self, ranks: int, with_gpus: bool) -> None:
        # Ray logs, with tracebacks and from a thread of its own, what this package reports itself.
        logging.getLogger("ray.dag.compiled_dag_node").setLevel(logging.CRITICAL)
        self.owned = not ray.is_initialized()
        if self.owned:
            ray.init(num_cpus=ranks, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
        try:
            self.gpus = ray.cluster_resources().get("GPU", 0) >= ranks
            self._check("CPU", ranks)
            if with_gpus:
                self._check("GPU", ranks)
        except PipeError:
            self.end()
            raise

    def _check(self, what: str, ranks: int) -> None:
        """Raises PipeError where ranks find no place, after the time that ended actors take to leave theirs."""
        deadline = time.monotonic() + _LEAVING
        total = int(ray.cluster_resources().get(what, 0))
        free = int(ray.available_resources().get(what, 0))
        while free < ranks <= total and time.monotonic() < deadline:
            time.sleep(0.05)
            free = int(ray.available_resources().get(what, 0))
        if free < ranks:
            message = f"{ranks} ranks need {ranks} {what}s, one each; Ray has {free} free of {total}"
            raise PipeError(Diagnostic("P714", message, None, "close other pipelines, or start Ray with more"))

    def end_actors(self, actors: Sequence[Any], pids: Sequence[int], at_once: bool) -> None:
        """Ends actors; without goodbyes where it is to be ``at_once``, as one of them may be stuck."""
        if not ray.is_initialized():
            return
        farewells = [] if at_once else [actor.__ray_terminate__.remote() for actor in actors]
        if farewells:
            ray.wait(farewells, num_returns=len(farewells), timeout=_GOODBYE)
        for actor in actors:
            ray.kill(actor)
        _wait_for_exit(pids)

    def end(self) -> None:
        """Ends Ray where it is this session's own."""
        if self.owned and ray.is_initialized():
            ray.shutdown()


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
