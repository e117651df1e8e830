"""The actors of all ranks: started together, asked together, and accounted for when one is gone."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Sequence
from pickle import PicklingError
from typing import Any

import ray
from ray.exceptions import RayError

from ..diagnostics import Diagnostic, PipeError
from ..runtime.failure import no_start
from ..runtime.spec import RankSpec

__all__ = ["Crew", "last_line"]

ANSWER = 2.0
"""Seconds a rank gets to say what it does before it counts as gone."""

NOTICE = 2.0
"""Seconds in which a process that has died is known to Ray as dead."""


class Crew:
    """One actor a rank, of ``actor_class`` and with Ray's ``options``."""

    def __init__(self, actor_class: Any, options: dict[str, Any]) -> None:
        self.actors: list[Any] = []
        self.pids: list[int] = []
        self._class = actor_class
        self._options = options

    def start(self, specs: Sequence[RankSpec]) -> None:
        """Starts every rank and waits for it. Raises PipeError (P701, P714) for one that cannot start."""
        for spec in specs:
            self.actors.append(_sent(self._class, spec, self._options))
        answers = [_started(rank, actor) for rank, actor in enumerate(self.actors)]
        self.pids = [pid for pid, _ in answers]
        for rank, (_, failure) in enumerate(answers):
            if failure is not None:
                raise PipeError(no_start(rank, *failure))

    def ask(self, method: str, *arguments: Any, timeout: float | None = None) -> list[Any]:
        """What a method returns on every rank. Copies: what Ray hands out cannot be written to."""
        answers = [getattr(actor, method).remote(*arguments) for actor in self.actors]
        return copy.deepcopy(ray.get(answers, timeout=timeout))

    def death(self, error: RayError) -> Diagnostic:
        """Which ranks are gone, and what the others were doing."""
        deadline = time.monotonic() + NOTICE
        alive = self._alive()
        while len(alive) == len(self.actors) and time.monotonic() < deadline:
            time.sleep(0.1)
            alive = self._alive()
        dead = [rank for rank in range(len(self.actors)) if rank not in alive]
        notes = tuple(f"rank {rank}: {doing}" for rank, doing in alive.items())
        if not dead:
            return Diagnostic("P713", f"the ranks lost each other: {last_line(error)}", notes=notes)
        names = ", ".join(f"rank {rank} (process {self.pids[rank]})" for rank in dead)
        return Diagnostic("P713", f"{names} died during the step", notes=notes)

    def _alive(self) -> dict[int, str]:
        asked = [actor.where.remote() for actor in self.actors]
        alive = {}
        for rank, answer in enumerate(asked):
            try:
                alive[rank] = ray.get(answer, timeout=ANSWER)
            except (RayError, TimeoutError):
                continue
        return alive


def _sent(actor_class: Any, spec: RankSpec, options: dict[str, Any]) -> Any:
    """The actor of a rank. Raises PipeError (P701) for what cannot be sent to another process."""
    try:
        return actor_class.options(**options).remote(spec)
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
        raise PipeError(Diagnostic("P714", f"rank {rank} could not start: {last_line(error)}")) from error


def last_line(error: BaseException) -> str:
    """What was raised: Ray's text is a traceback in colours, and that stands on its last line."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
