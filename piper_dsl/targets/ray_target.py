"""What the targets on Ray have in common: ranks as actors, a step under watch, and their end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import ray
import torch
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ..diagnostics import Diagnostic, PipeError
from ..runtime.failure import OperationFailed
from ..runtime.report import RankReport, StepOutcome
from ..runtime.resources import Resources
from ..runtime.spec import Batch, RankSpec
from .crew import Crew, last_line
from .groups import Pair, WirePlan
from .ray_session import RaySession
from .watchdog import Watchdog

__all__ = ["CONNECT", "Outcome", "RayTarget"]

CONNECT = 120.0
"""Seconds the ranks may take to find each other."""

LOCALHOST = "127.0.0.1"

Outcome = OperationFailed | RankReport | None
"""How a step ended on a rank; None: well, but it failed on another."""


class RayTarget(ABC):
    """Trains on one actor a rank. Starts them with the first step; a subclass says how, and how a step runs."""

    name = ""

    def __init__(self, specs: Sequence[RankSpec], timeout: float | None, resources: Resources) -> None:
        self._specs = list(specs)
        self._session = RaySession(len(specs), resources)
        self._watchdog = Watchdog(timeout)
        self._crew: Crew | None = None
        self._example: Sequence[Batch] | None = None
        self._between_steps = True
        self._folder: str | None = None
        self._store: TCPStore | None = None

    @abstractmethod
    def _start(self, crew: Crew, batches: Sequence[Batch]) -> None:
        """Starts the ranks with :meth:`_launch`, and whatever they need for steps with such data."""

    @abstractmethod
    def _execute(self, crew: Crew, steps: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Outcome]]:
        """How every rank ended a step, by step. After one that failed no other is asked for or made.

        Raises RayError where a rank is gone.
        """

    def _launch(self, crew: Crew, actor_class: Any, **options: Any) -> None:
        """Starts the ranks; the first that cannot start is told of."""
        specs = [replace(spec, device="cuda" if self._session.gpus else "cpu") for spec in self._specs]
        crew.start(specs, actor_class, lambda rank: {"max_restarts": 0, **self._session.options(rank), **options})

    def _plan(self, pairs: tuple[Pair, ...], **options: str) -> WirePlan:
        """How the ranks find each other: at a store, which lives here as long as they do."""
        host = LOCALHOST if len(ray.nodes()) == 1 else ray.util.get_node_ip_address()
        self._store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
        return WirePlan(
            host=host,
            port=self._store.port,
            ranks=len(self._specs),
            device="cuda" if self._session.gpus else "cpu",
            pairs=pairs,
            summing=tuple(sorted({group.ranks for spec in self._specs for group in spec.shared})),
            **options,
        )

    @contextmanager
    def _meeting(self, crew: Crew, plan: WirePlan) -> Iterator[None]:
        """Inside it the ranks meet. Raises PipeError (P714) where they do not."""
        try:
            yield
        except (GetTimeoutError, RayTaskError, OSError) as error:
            if crew.any_died():
                raise
            message = f"the ranks cannot reach each other at {plan.host}: {last_line(error)}"
            raise PipeError(Diagnostic("P714", message)) from error

    def run(self, steps: Sequence[Sequence[Batch]]) -> list[StepOutcome]:
        """Makes steps, up to the first in which an operation raises.

        Raises PipeError for a rank that died, and a start or steps that took longer than the watchdog allows.
        """
        self._session.refuse_if_gone()
        # What ranks draw says nothing of shapes; there is always a step before it that does.
        shown = self._example if self._example is not None and steps[0][0].drawn is not None else steps[0]
        crew = self._crew or self._begun(shown)
        self._take_up()
        self._between_steps = False
        with self._accounted(crew, lambda actors: self._watchdog.over(actors, len(steps)), "during the step"):
            ended = list(_ended(self._execute(crew, steps)))
        self._between_steps = True
        return ended

    def _begun(self, batches: Sequence[Batch]) -> Crew:
        """The ranks, started for steps with such data. All do, or nothing of them stays, nor do their places."""
        self._example = batches
        self._crew = crew = Crew()
        self._between_steps = False
        try:
            with self._accounted(crew, self._watchdog.over_start, "while the ranks started"):
                self._start(crew, batches)
        except BaseException:
            self._release()
            self._session.give_back()
            raise
        self._between_steps = True
        return crew

    @contextmanager
    def _accounted(self, crew: Crew, over: Callable[[Sequence[Any]], Any], when: str) -> Iterator[None]:
        """Runs under watch: says what every rank was doing where it took too long, and who died where one did."""
        try:
            with over(crew.actors) as watch:
                yield
        except RayError as error:
            raise PipeError(watch.verdict or crew.death(error, when)) from error

    def _ask(self, method: str, *arguments: Any) -> list[Any]:
        if self._example is None:
            message = "the ranks start with the first step; there is nothing to ask them yet"
            raise PipeError(Diagnostic("P712", message))
        self._session.refuse_if_gone()
        if self._crew is None:
            self._begun(self._example)
            self._take_up()
        assert self._crew is not None
        # Whoever does not answer in time, or is ended for it, is not waited for when all are ended.
        self._between_steps = False
        with self._accounted(self._crew, self._watchdog.over_answer, "between steps"):
            answers = self._crew.ask(method, *arguments)
        self._between_steps = True
        return answers

    def state(self) -> list[dict[int, dict[str, Any]]]:
        return self._ask("state")

    def gradients(self) -> list[dict[int, dict[str, torch.Tensor]]]:
        return self._ask("gradients")

    def held(self) -> list[int]:
        return self._ask("held")

    def save(self, folder: str) -> list[str]:
        """Writes the state of every rank into a folder that all of them see; the digests of the files."""
        return _unless_failed(self._ask("save", folder))

    def restore(self, folder: str) -> None:
        """Takes up what :meth:`save` wrote; where the ranks have not started yet, as soon as they have."""
        self._folder = folder
        if self._crew is not None:
            self._take_up()

    def _take_up(self) -> None:
        if self._folder is not None:
            _unless_failed(self._ask("restore", self._folder))
            self._folder = None

    def restart(self) -> None:
        """Ends the ranks; what is asked of them next starts fresh ones."""
        self._release()
        self._session.renew()
        self._between_steps = True

    def close(self) -> None:
        """Ends the actors; a step that is under way is not waited for."""
        self._release()
        self._session.end()

    def _release(self) -> None:
        """Ends the actors."""
        crew, self._crew, self._store = self._crew, None, None
        if crew is not None:
            self._session.end_actors(crew.actors, crew.pids, at_once=not self._between_steps)


def _ended(steps: Iterable[Sequence[Outcome]]) -> Iterator[StepOutcome]:
    """What became of steps, up to the first that failed: the failure, or the report of every rank."""
    for outcomes in steps:
        failure = next((outcome for outcome in outcomes if isinstance(outcome, OperationFailed)), None)
        yield failure or [outcome for outcome in outcomes if isinstance(outcome, RankReport)]
        if failure is not None:
            return


def _unless_failed(answers: list[Any]) -> list[Any]:
    """The answers of all ranks. Raises the first that is an error."""
    for answer in answers:
        if isinstance(answer, PipeError):
            raise answer
    return answers
