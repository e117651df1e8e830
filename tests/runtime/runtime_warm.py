"""Ranks of target ray-program that serve one pipeline after another: starting processes is what takes time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import ray
import torch.distributed as dist

from piper_dsl.runtime.spec import Batch, RankSpec
from piper_dsl.targets.crew import Crew
from piper_dsl.targets.program_actor import ACTOR_OPTIONS, _ProgramActor
from piper_dsl.targets.ray_program import RayProgramTarget


class _Warm(_ProgramActor):
    """An actor of a rank that becomes another rank."""

    def __init__(self) -> None:
        """No rank yet."""

    def renew(self, spec: RankSpec) -> None:
        """A fresh rank, as a fresh process would have it."""
        if dist.is_initialized():
            dist.destroy_process_group()
        super().__init__(spec)


@contextmanager
def warm_ranks(count: int) -> Iterator[None]:
    """While it lasts, pipelines on target ray-program run on the same ``count`` actors."""
    actors = [ray.remote(**ACTOR_OPTIONS)(_Warm).options(num_cpus=0).remote() for _ in range(count)]

    def start(self: Crew, specs: Sequence[RankSpec], *_: Any) -> None:
        self.actors[:] = actors[: len(specs)]
        ray.get([actor.renew.remote(spec) for actor, spec in zip(self.actors, specs, strict=True)])
        self.pids = [pid for pid, _ in ray.get([actor.started.remote() for actor in self.actors])]

    def begin(
        self: RayProgramTarget, crew: Crew, batches: Sequence[Batch], real: Any = RayProgramTarget._start
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Crew, "start", start)
            real(self, crew, batches)

    def close(self: RayProgramTarget) -> None:
        self._crew = None
        self._session.end()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RayProgramTarget, "_start", begin)
        patch.setattr(RayProgramTarget, "close", close)
        yield
    for actor in actors:
        ray.kill(actor)
