"""What the targets on Ray have in common: ranks as actors, a step under watch, and their end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import ray
import torch
from ray.exceptions import RayError
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from ..diagnostics import Diagnostic, PipeError
from ..runtime.failure import OperationFailed
from ..runtime.report import RankReport, StepOutcome
from ..runtime.spec import Batch, RankSpec
from .crew import Crew, last_line
from .ray_session import RaySession
from .watchdog import Watchdog
from .wire import Pair, WirePlan

__all__ = ["Outcome", "RayTarget"]

CONNECT = 120.0
"""Seconds the ranks may take to find each other."""

LOCALHOST = "127.0.0.1"

Outcome = OperationFailed | RankReport | None
"""How a step ended on a rank; None: well, but it failed on another."""


class RayTarget(ABC):
    """Trains on one actor a rank. Starts them with the first step; a subclass says how, and how a step runs."""

    name = ""

    def __init__(self, specs: Sequence[RankSpec], timeout: float | None, needs_gpus: bool) -> None:
        self._specs = list(specs)
        self._session = RaySession(len(specs), needs_gpus)
        self._watchdog = Watchdog(timeout)
        self._crew: Crew | None = None
        self._between_steps = True
        self._folder: str | None = None
        self._store: TCPStore | None = None

    @abstractmethod
    def _start(self, batches: Sequence[Batch]) -> None:
        """Starts the ranks with :meth:`_launch`, and whatever they need for steps with such data."""

    @property
    def _on_gpus(self) -> bool:
        """Whether the ranks compute on GPUs."""
        return bool(self._session.gpus)

    @abstractmethod
    def _execute(self, crew: Crew, steps: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Outcome]]:
        """How every rank ended a step, by step. After one that failed no other is asked for or made.

        Raises RayError where a rank is gone.
        """

    def _launch(self, actor_class: Any, gpus: bool, **options: Any) -> Crew:
        """Starts the ranks; the first that cannot start is told of."""
        specs = [replace(spec, device="cuda" if gpus else "cpu") for spec in self._specs]
        options = {"num_cpus": 1, "num_gpus": 1 if gpus else 0, "max_restarts": 0, **options}
        self._crew = Crew(actor_class, options)
        self._crew.start(specs)
        return self._crew

    def _meet(self, crew: Crew, method: str, *arguments: Any, pairs: tuple[Pair, ...], ordered: bool) -> None:
        """Calls a method on all ranks at once, with the plan by which they find each other.

        Raises PipeError (P714) where they do not.
        """
        host = LOCALHOST if len(ray.nodes()) == 1 else ray.util.get_node_ip_address()
        # The ranks meet at a store, which lives here as long as they do.
        self._store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
        plan = WirePlan(
            host=host,
            port=self._store.port,
            ranks=len(self._specs),
            device="cuda" if self._on_gpus else "cpu",
            pairs=pairs,
            summing=tuple(sorted({group.ranks for spec in self._specs for group in spec.shared})),
            ordered=ordered,
        )
        try:
            crew.ask(method, *arguments, plan, timeout=CONNECT)
        except RayError as error:
            message = f"the ranks cannot reach each other at {host}: {last_line(error)}"
            raise PipeError(Diagnostic("P714", message)) from error

    def run(self, steps: Sequence[Sequence[Batch]]) -> list[StepOutcome]:
        """Makes steps, up to the first in which an operation raises.

        Raises PipeError for a rank that died or steps that took longer than the watchdog allows.
        """
        if self._crew is None:
            self._start(steps[0])
        assert self._crew is not None
        self._take_up(self._crew)
        self._between_steps = False
        try:
            with self._watchdog.over(self._crew.actors, len(steps)) as watch:
                ended = list(_ended(self._execute(self._crew, steps)))
        except RayError as error:
            raise PipeError(watch.verdict or self._crew.death(error)) from error
        self._between_steps = True
        return ended

    def _ask(self, method: str, *arguments: Any) -> list[Any]:
        if self._crew is None:
            message = "the ranks start with the first step; there is nothing to ask them yet"
            raise PipeError(Diagnostic("P712", message))
        try:
            return self._crew.ask(method, *arguments)
        except RayError as error:
            raise PipeError(self._crew.death(error)) from error

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
            self._take_up(self._crew)

    def _take_up(self, crew: Crew) -> None:
        if self._folder is None:
            return
        folder, self._folder = self._folder, None
        _unless_failed(crew.ask("restore", folder))

    def restart(self) -> None:
        """Ends the ranks; the next step starts fresh ones."""
        self._release()
        self._between_steps = True

    def close(self) -> None:
        """Ends the actors; a step that is under way is not waited for."""
        self._release()
        self._session.end()

    def _release(self) -> None:
        """Ends the actors."""
        crew, self._crew = self._crew, None
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
