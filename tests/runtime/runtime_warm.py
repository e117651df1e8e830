"""Ranks of both targets on Ray that serve one pipeline after another: starting processes is what takes time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import ray
import torch.distributed as dist
from ray.exceptions import RayActorError

from piper_dsl.runtime.spec import Batch, RankSpec
from piper_dsl.targets.crew import Crew
from piper_dsl.targets.program_actor import ACTOR_OPTIONS, _ProgramActor
from piper_dsl.targets.rank_actor import _RankActor
from piper_dsl.targets.ray_dag import RayDagTarget
from piper_dsl.targets.ray_program import RayProgramTarget
from piper_dsl.targets.ray_target import RayTarget


class _Warm(_ProgramActor, _RankActor):
    """An actor of a rank that becomes another rank, on either target."""

    def __init__(self) -> None:
        """No rank yet."""

    def ready(self) -> None:
        """Answers."""

    def renew(self, spec: RankSpec) -> None:
        """A fresh rank, as a fresh process would have it."""
        if dist.is_initialized():
            dist.destroy_process_group()
        super().__init__(spec)


class WarmActors:
    """So many actors, which are made anew where one was killed."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._actors: list[Any] = []

    def alive(self) -> list[Any]:
        """All of them."""
        try:
            ray.get([actor.ready.remote() for actor in self._actors])
        except RayActorError:
            self.end()
        if not self._actors:
            made = ray.remote(**ACTOR_OPTIONS)(_Warm).options(num_cpus=0)
            self._actors = [made.remote() for _ in range(self._count)]
        return self._actors

    def end(self) -> None:
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []


@contextmanager
def warm_ranks(warm: WarmActors) -> Iterator[None]:
    """While it lasts, pipelines on Ray run on these actors."""

    def start(self: Crew, specs: Sequence[RankSpec], *_: Any) -> None:
        self.actors[:] = warm.alive()[: len(specs)]
        ray.get([actor.renew.remote(spec) for actor, spec in zip(self.actors, specs, strict=True)])
        self.pids = [pid for pid, _ in ray.get([actor.started.remote() for actor in self.actors])]

    def begin(real: Any) -> Any:
        def begun(self: RayTarget, crew: Crew, batches: Sequence[Batch]) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Crew, "start", start)
                real(self, crew, batches)

        return begun

    def close(self: RayTarget) -> None:
        if isinstance(self, RayDagTarget) and self._graph is not None and self._lines is not None:
            self._graph.teardown(kill_actors=False)
            self._lines.release()
            self._graph = self._lines = None
        self._crew = None
        self._session.end()

    with pytest.MonkeyPatch.context() as patch:
        for target in (RayProgramTarget, RayDagTarget):
            patch.setattr(target, "_start", begin(target._start))
            patch.setattr(target, "close", close)
        yield
