"""Target ``auto``: what the machine, or the Ray cluster in use, is good for."""

from __future__ import annotations

import importlib.util
import os

import torch

__all__ = ["chosen_target"]


def chosen_target(ranks: int) -> str:
    """``ray-program`` where every rank can have a GPU or a CPU core of its own, else ``local``.

    Ranks that share cores only take turns, which one process does without messages. Where this process has joined no
    cluster, one that the environment names is there to be used, whatever it has.
    """
    if ranks < 2 or importlib.util.find_spec("ray") is None:
        return "local"
    found = _resources()
    return "ray-program" if found is None or max(found) >= ranks else "local"


def _resources() -> tuple[int, int] | None:
    """CPUs and GPUs: of the Ray instance that runs, else of this machine as this process may use it.

    None for those of a cluster that has not been joined yet.
    """
    import ray

    from .cluster import named_cluster

    if ray.is_initialized():
        found = ray.cluster_resources()
        return int(found.get("CPU", 0)), int(found.get("GPU", 0))
    return None if named_cluster() else (len(os.sched_getaffinity(0)), torch.cuda.device_count())
