"""What the actors of all targets have in common: a rank, made where it runs, that answers at any time."""

from __future__ import annotations

import os
from typing import Any

import ray
import torch

from ..diagnostics import PipeError
from ..runtime.checkpoint import read_replicas, write_rank
from ..runtime.failure import OperationFailed, where_raised
from ..runtime.rank import Rank
from ..runtime.report import RankReport
from ..runtime.spec import RankSpec
from .groups import WirePlan
from .wire import Wire

__all__ = ["RankHost"]


class RankHost:
    """Holds one rank. A rank that cannot be made is told of by :meth:`started`: constructors of actors do not raise."""

    def __init__(self, spec: RankSpec) -> None:
        self._startup: tuple[str, tuple[str, ...]] | None = None
        try:
            self._rank = Rank(spec)
        except Exception as error:
            self._startup = (f"{type(error).__name__}: {error}", where_raised(error))

    def where(self) -> str:
        """What the rank is doing, in words."""
        return self._rank.doing()

    def started(self) -> tuple[int, tuple[str, tuple[str, ...]] | None]:
        """The process, and why the rank could not be made there, with its traceback; None if it could."""
        return os.getpid(), self._startup

    def join(self, plan: WirePlan) -> None:
        """Joins the other ranks, all at once."""
        self._wire = Wire(self._rank.number, plan, ray.get_runtime_context().get_node_id())
        self._rank.updates.sums.connection = self._wire

    def update(self) -> OperationFailed | RankReport:
        """Ends a step whose gradients all ranks keep: those of copies and tied stages are summed, optimizers step.

        Returns what ran when, or what an optimizer raised.
        """
        updates = self._rank.updates
        updates.share()
        norm = self._wire.total(updates.squared_norm()) if updates.clips else None
        try:
            self._rank.update(norm)
        except OperationFailed as failure:
            return failure
        return self._rank.report()

    def evaluated(self) -> RankReport:
        """The end of a step that only evaluates."""
        report = self._rank.report()
        self._rank.drop()
        return report

    def state(self) -> dict[int, dict[str, Any]]:
        with self._rank.busy("copying its state"):
            return self._rank.state()

    def save(self, folder: str) -> str | PipeError:
        """Writes the state of the rank; the digest of the file, or why it cannot."""
        with self._rank.busy("writing a checkpoint"):
            try:
                return write_rank(self._rank.checkpoint(), folder, self._rank.number)
            except PipeError as error:
                return error

    def restore(self, folder: str) -> PipeError | None:
        """Takes up what ``save`` wrote; what is wrong with it, None if nothing."""
        with self._rank.busy("taking up a checkpoint"):
            try:
                self._rank.restore(read_replicas(folder, self._rank.replica))
            except PipeError as error:
                return error
        return None

    def gradients(self) -> dict[int, dict[str, torch.Tensor]]:
        with self._rank.busy("copying its gradients"):
            return self._rank.gradients()

    def held(self) -> int:
        return self._rank.held()
