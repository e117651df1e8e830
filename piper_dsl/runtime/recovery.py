"""Going on where a rank died: fresh ranks, the last checkpoint, and the batches since, once more."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from ..diagnostics import PipeError
from .checkpoint import CheckpointFolder, Found
from .measure import StepReport
from .spec import Batch

__all__ = ["Checkpointed", "Recovery", "Trained"]


@dataclass(frozen=True, eq=False)
class Trained:
    """What came of some steps: a report of each that was made, and what the next one failed of, if it did."""

    reports: Sequence[StepReport]
    failure: PipeError | None = None


Steps = Sequence[Sequence[Batch]]
"""The data of steps that are made in one call, for every rank."""

Run = Callable[[Steps], Trained]

_log = logging.getLogger("piper_dsl")

T = TypeVar("T")


class Checkpointed(Protocol):
    """The part of a target that checkpoints need."""

    def save(self, folder: str) -> list[str]: ...

    def restore(self, folder: str) -> None: ...

    def restart(self) -> None: ...


class Recovery:
    """Saves a target's state every ``every`` steps, and restarts it at most ``max_restarts`` times.

    ``run`` makes steps. The batches since the last checkpoint are kept where there are restarts. Steps are
    deterministic, so what is trained after a restart is what would have been trained without.
    """

    def __init__(
        self, target: Checkpointed, run: Run, folder: CheckpointFolder | None, every: int, max_restarts: int
    ) -> None:
        self._saved: int | None = None
        self._target = target
        self._run = run
        self._folder = folder
        self._every = every
        self._left = max_restarts
        self._base: Path | None = None
        self._fresh = False
        self._since: list[Sequence[Batch]] = []
        self._done = 0

    def train(self, steps: Steps) -> Trained:
        """Some steps, and what it takes to get there. Raises what ``run`` raises where no restart is left."""
        trained = self.survive(lambda: self._run(steps))
        # A step that failed has left no trace, and is not to be run again.
        made = steps[: len(trained.reports)]
        if made:
            self._since = [*self._since, *made] if self._left else []
        self._done = len(self._since)
        return trained

    def survive(self, action: Callable[[], T]) -> T:
        """What an action returns. Where a rank dies in it, all start anew, catch up, and it is tried once more.

        Raises what the action raises, what a step that is made again fails of, and both a death and what is in the way
        of starting anew.
        """
        while True:
            try:
                self._catch_up()
                return action()
            except PipeError as error:
                if not (self._left and any(finding.code == "P713" for finding in error.diagnostics)):
                    raise
                self._left -= 1
                self._restart(error)

    def _catch_up(self) -> None:
        if self._fresh and self._base is not None:
            self._target.restore(str(self._base))
        self._fresh = False
        # One by one: of those that are made when one fails, none is to be made twice.
        for step in self._since[self._done :]:
            failure = self._run([step]).failure
            if failure is not None:
                raise failure
            self._done += 1

    def _restart(self, error: PipeError) -> None:
        message = "%s; all ranks start anew from %s; restarts left: %d"
        _log.warning(message, error.diagnostics[0].message, self._base or "the beginning", self._left)
        self._fresh, self._done = True, 0
        try:
            self._target.restart()
        except PipeError as again:
            raise PipeError(*error.diagnostics, *again.diagnostics) from again

    def save_if_new(self, step: int) -> None:
        """Writes a checkpoint of the state after ``step`` steps, unless there is one."""
        if step != self._saved:
            self.save(step)

    def before_saving(self, step: int) -> int | None:
        """How many steps after ``step`` the next checkpoint is written; None for never."""
        return None if self._folder is None else self._every - step % self._every

    def stepped(self, step: int) -> None:
        """After ``step`` steps: writes a checkpoint if it is time."""
        if self._folder is not None and step % self._every == 0:
            self.save(step)

    def save(self, step: int) -> None:
        """Writes a checkpoint of the state after ``step`` steps."""
        self._base = self.survive(lambda: self._written(step))
        self._saved, self._since, self._done = step, [], 0

    def _written(self, step: int) -> Path:
        assert self._folder is not None
        part = self._folder.begin(step)
        try:
            return self._folder.commit(step, self._target.save(str(part)))
        except BaseException:
            self._folder.abandon(part)
            raise

    def newest(self) -> Found | None:
        """The newest checkpoint that is whole; None where there is no checkpoint."""
        assert self._folder is not None
        return self._folder.newest()

    def take_up(self, found: Found) -> None:
        """Goes on from a checkpoint. Where it raises, some ranks may have taken it up and others not."""
        self.survive(lambda: self._target.restore(str(found.path)))
        self._saved, self._base, self._since, self._done = found.step, found.path, [], 0
