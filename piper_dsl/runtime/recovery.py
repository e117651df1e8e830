"""Going on where a rank died: fresh ranks, the last checkpoint, and the batches since, once more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..diagnostics import PipeError
from .checkpoint import CheckpointFolder
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


class Checkpointed(Protocol):
    """The part of a target that checkpoints need."""

    def save(self, folder: str) -> list[str]: ...

    def restore(self, folder: str) -> None: ...

    def restart(self) -> None: ...


class Recovery:
    """Saves a target's state every ``every`` steps, and restarts it at most ``max_restarts`` times.

    The batches since the last checkpoint are kept where there are restarts. Steps are deterministic, so what
    is trained after a restart is what would have been trained without.
    """

    def __init__(self, target: Checkpointed, folder: CheckpointFolder | None, every: int, max_restarts: int) -> None:
        self._target = target
        self._folder = folder
        self._every = every
        self._left = max_restarts
        self._base: Path | None = None
        self._since: list[Steps] = []
        self._done = 0

    def train(self, steps: Steps, run: Run) -> Trained:
        """Some steps, and what it takes to get there. Raises what ``run`` raises where no restart is left."""
        self._since.append(steps)
        while True:
            try:
                trained = self._catch_up(run)
                # A step that failed has left no trace, and is not to be run again.
                self._since[-1] = steps[: len(trained.reports)]
                return trained
            except PipeError as error:
                if not (self._left and any(finding.code == "P713" for finding in error.diagnostics)):
                    self._since.pop()
                    raise
                self._left -= 1
                self._restart()

    def _catch_up(self, run: Run) -> Trained:
        for steps in self._since[self._done :]:
            trained = run(steps)
            self._done += 1
        return trained

    def before_saving(self, step: int) -> int | None:
        """How many steps after ``step`` the next checkpoint is written; None for never."""
        return None if self._folder is None else self._every - step % self._every

    def stepped(self, step: int) -> None:
        """After ``step`` steps: writes a checkpoint if it is time."""
        if self._folder is not None and step % self._every == 0:
            self.save(step)
        elif not self._left:
            self._since, self._done = [], 0

    def _restart(self) -> None:
        self._target.restart()
        self._done = 0
        if self._base is not None:
            self._target.restore(str(self._base))

    def save(self, step: int) -> None:
        """Writes a checkpoint of the state after ``step`` steps."""
        assert self._folder is not None
        digests = self._target.save(str(self._folder.begin(step)))
        self._base = self._folder.commit(step, digests)
        self._since, self._done = [], 0

    def resume(self) -> tuple[int, list[str]] | None:
        """Takes up the newest checkpoint that is whole: the steps done, and what is wrong with newer ones.

        None where there is no checkpoint: then nothing changes.
        """
        assert self._folder is not None
        found = self._folder.newest()
        if found is None:
            return None
        step, self._base, damaged = found
        self._target.restore(str(self._base))
        self._since, self._done = [], 0
        return step, damaged
