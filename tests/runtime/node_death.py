"""Trains on two nodes of this machine, and ends one of them in mid-step, as where its machine is lost.

The head has no CPUs, so all ranks are on nodes that may go. Says what became of it, once with nobody to take over,
once with a node to spare, and once with a restart left and no node.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import ray
import torch
from ray.cluster_utils import Cluster
from runtime_models import HOT, WIDTH, Carry, FaultyOnce, first_and_last, sgd
from runtime_processes import eventually, parent, rank_processes

import piper_dsl as piper
from piper_dsl.targets import ray_session

TOLD, CLOSED = 10.0, 10.0
"""Seconds in which the loss of a node is told, and the pipeline closed. Ray alone takes up to four to know of it."""

torch.manual_seed(0)
STAGES = [Carry(), Carry()]
BATCHES = [torch.rand(2, 8, WIDTH).unbind() for _ in range(3)]
BATCHES[1][0][2:4] = 2 * HOT


class Loss(threading.Thread):
    """Waits until a rank is asleep in mid-step, and removes the node on which it is, or one on which another is."""

    def __init__(self, cluster: Cluster, mark: Path, sleeper: bool) -> None:
        super().__init__(daemon=True)
        self.at = 0.0
        self._cluster, self._mark, self._sleeper = cluster, mark, sleeper
        self.start()

    def run(self) -> None:
        if not eventually(self._mark.exists, 100):
            return
        asleep = int(self._mark.read_text())
        victim = asleep if self._sleeper else (rank_processes() - {asleep}).pop()
        node = next(node for node in self._cluster.worker_nodes if _raylet(node) == parent(victim))
        self.at = time.monotonic()
        self._cluster.remove_node(node, allow_graceful=False)


def _raylet(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


def _pipeline(target: str, mark: Path, **options: Any) -> piper.Pipeline:
    stages, schedule = [STAGES[0], FaultyOnce("sleep", mark)], piper.load("1f1b", p=2, m=4)
    stages[1].load_state_dict(STAGES[1].state_dict())
    arguments = {"loss_fn": first_and_last, "optimizer": sgd, "target": target, **options}
    return piper.Pipeline(stages, schedule, **arguments)


def _undisturbed() -> list[float]:
    mark = Path(mkdtemp()) / "asleep"
    mark.touch()
    with _pipeline("local", mark) as pipeline:
        return [pipeline.step(*batch) for batch in BATCHES]


def _disturbed(cluster: Cluster, target: str, sleeper: bool, restarts: int) -> str:
    """What became of three steps, in the second of which a node is lost."""
    folder = Path(mkdtemp())
    options: dict[str, Any] = {"strategy": "strict-spread", "num_gpus": 0}
    if restarts:
        options |= {"checkpoints": folder / "saved", "checkpoint_every": 1, "max_restarts": restarts}
    with _pipeline(target, folder / "asleep", **options) as pipeline:
        loss = Loss(cluster, folder / "asleep", sleeper)
        try:
            losses = [pipeline.step(*batch) for batch in BATCHES]
            said = "as undisturbed" if losses == _undisturbed() else f"{losses}"
        except piper.PipeError as error:
            late = time.monotonic() - loss.at
            said = _said(error, folder / "asleep")
            said += "" if late < TOLD + restarts * ray_session._RECOVERY else f", after {late:.1f} s"
        closing = time.monotonic()
    late = time.monotonic() - closing
    return said + ("" if late < CLOSED else f", closed after {late:.1f} s")


def _said(error: piper.PipeError, mark: Path) -> str:
    """The findings; of ranks, whether it is the one that slept, as processes have other numbers every time."""
    found = " | ".join(f"{finding.code} {finding.message}" for finding in error.diagnostics)
    asleep = mark.read_text() if mark.exists() else ""
    found = re.sub(rf"rank [01] \(process {asleep}\)", "the rank that slept", found)
    return re.sub(r"rank [01] \(process \d+\)", "the other rank", found)


def _add_nodes(cluster: Cluster, cpus: int) -> None:
    """Two nodes of one CPU each, so that there are so many in all, as soon as the driver knows of them."""
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    if not ray.is_initialized():
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    assert eventually(lambda: ray.cluster_resources().get("CPU", 0) == cpus, 30)


def main(target: str, told: Path) -> None:
    """Writes what became of it to ``told``: on standard output are Ray's own messages."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    said: list[str] = []
    try:
        _add_nodes(cluster, 2)
        said.append(_disturbed(cluster, target, sleeper=False, restarts=0))
        _add_nodes(cluster, 3)
        said.append(_disturbed(cluster, target, sleeper=True, restarts=1))
        ray_session._RECOVERY = 15
        said.append(_disturbed(cluster, target, sleeper=True, restarts=1))
    finally:
        told.write_text("\n".join(said))
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
