"""Several pipelines side by side (data parallelism) as one schedule, in which every stage has a copy in each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .placement import Placement
from .schedule import Schedule

__all__ = ["replicate"]


def replicate(schedule: Schedule, replicas: int) -> Schedule:
    """A schedule that checks, ``replicas`` times: each a pipeline of its own, with a part of the batch.

    Of ``p`` ranks and ``m`` microbatches, replica ``k`` has the ranks ``k * p`` to ``k * p + p - 1`` and the
    microbatches ``k * m`` to ``k * m + m - 1``. Ranks that hold the same stage are copies of it, as in a bidirectional
    pipeline. The result checks too: with all replicas in step, whatever an OPT needs of the others has run.
    """
    if replicas == 1:
        return schedule
    ranks = [schedule.placement.rank_of + k * schedule.ranks for k in range(replicas)]
    microbatches = [_shifted(schedule.microbatch, k * schedule.microbatches) for k in range(replicas)]
    origin = schedule.origin
    return replace(
        schedule,
        name=f"{schedule.name}, {replicas} replicas",
        ranks=schedule.ranks * replicas,
        microbatches=schedule.microbatches * replicas,
        placement=Placement(np.concatenate(ranks, axis=1), schedule.ranks * replicas),
        kind=np.tile(schedule.kind, replicas),
        stage=np.tile(schedule.stage, replicas),
        microbatch=np.concatenate(microbatches),
        joined=np.tile(schedule.joined, replicas),
        offsets=np.append(0, np.cumsum(np.tile(np.diff(schedule.offsets), replicas))),
        origin=replace(origin, site=np.tile(origin.site, replicas), context=np.tile(origin.context, replicas)),
    )


def _shifted(microbatch: np.ndarray, by: int) -> np.ndarray:
    """Microbatches of a later replica; -1, which is none, stays."""
    return np.where(microbatch < 0, microbatch, microbatch + by).astype(microbatch.dtype)
