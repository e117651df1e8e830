"""The actors of all ranks: started together, asked together, and accounted for when one is gone."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Sequence
from pickle import PicklingError
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from ..diagnostics import Diagnostic, PipeError
from ..runtime.failure import cannot_be_sent, no_start
from ..runtime.spec import RankSpec
from .roll_call import roll_call

__all__ = ["Crew", "kill_all", "last_line"]

NOTICE = 2.0
"""Seconds in which a process that has died is known to Ray as dead."""


class Crew:
    """One actor a rank, in the order of the ranks; empty until :meth:`start`."""

    def __init__(self) -> None:
        self.actors: list[Any] = []
        self.pids: list[int] = []

    def start(self, specs: Sequence[RankSpec], actor_class: Any, options: Callable[[int], dict[str, Any]]) -> None:
        """Starts every rank, with Ray's ``options`` for it, and waits for it.

        Raises PipeError (P701, P714) for one that cannot start, and RayError for one that dies meanwhile.
        """
        for spec in specs:
            self.actors.append(_sent(actor_class, spec, options(spec.rank)))
        answers = self._starts()
        self.pids = [answers[rank][0] for rank in range(len(answers))]
        for rank, (_, failure) in sorted(answers.items()):
            if failure is not None:
                raise PipeError(no_start(rank, *failure))

    def _starts(self) -> dict[int, Any]:
        """What every rank says of its start. None is waited for once another is gone."""
        calls = {actor.started.remote(): rank for rank, actor in enumerate(self.actors)}
        answers: dict[int, Any] = {}
        waiting = list(calls)
        while waiting:
            done, waiting = ray.wait(waiting)
            answers |= {calls[call]: _started(calls[call], call) for call in done}
        return answers

    def ask(self, method: str, *arguments: Any, timeout: float | None = None) -> list[Any]:
        """What a method returns on every rank. Copies: what Ray hands out cannot be written to."""
        answers = [getattr(actor, method).remote(*arguments) for actor in self.actors]
        return copy.deepcopy(ray.get(answers, timeout=timeout))

    def death(self, error: BaseException, when: str) -> Diagnostic:
        """Which ranks are gone, and what the others were doing."""
        found = self._roll_call()
        notes = tuple(f"rank {rank}: {doing}" for rank, doing in enumerate(found) if doing is not None)
        names = ", ".join(self._name(rank) for rank, doing in enumerate(found) if doing is None)
        if not names:
            return Diagnostic("P713", f"the ranks lost each other {when}: {last_line(error)}", notes=notes)
        return Diagnostic("P713", f"{names} died {when}", notes=notes)

    def any_died(self) -> bool:
        """Whether a rank is gone."""
        return None in self._roll_call()

    def _roll_call(self) -> list[str | None]:
        """What every rank is doing, as soon as one is known to be dead, or none is after some time."""
        deadline = time.monotonic() + NOTICE
        found = roll_call(self.actors)
        while None not in found and time.monotonic() < deadline:
            time.sleep(0.1)
            found = roll_call(self.actors)
        return found

    def _name(self, rank: int) -> str:
        return f"rank {rank} (process {self.pids[rank]})" if self.pids else f"rank {rank}"


def _sent(actor_class: Any, spec: RankSpec, options: dict[str, Any]) -> Any:
    """The actor of a rank. Raises PipeError (P701) for what cannot be sent to another process."""
    try:
        return actor_class.options(**options).remote(spec)
    except (TypeError, PicklingError) as error:
        raise PipeError(cannot_be_sent(spec.rank, spec.modules, error.__cause__ or error)) from error


def _started(rank: int, call: Any) -> Any:
    """What a rank says of its start. Raises PipeError (P714) where its process never got so far."""
    try:
        return ray.get(call)
    except RayError as error:
        if isinstance(error, RayActorError) and not error.actor_init_failed:
            raise
        raise PipeError(Diagnostic("P714", f"rank {rank} could not start: {last_line(error)}")) from error


def kill_all(actors: Sequence[Any]) -> None:
    """Ends actors at once, whatever they do."""
    for actor in actors:
        ray.kill(actor)


def last_line(error: BaseException) -> str:
    """What was raised: Ray's text is a traceback in colours, and that stands on its last line."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
