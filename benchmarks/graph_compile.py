"""How long target ray-dag takes to bind and compile its graph, once before the first step.

python benchmarks/graph_compile.py                       # 4x16, 4x64, 8x32, as ranks x microbatches
"""

from __future__ import annotations

import argparse
import time
from typing import Any
from unittest import mock

import ray
import step_model
from rich.console import Console
from rich.table import Table

import piper_dsl as piper
from piper_dsl.targets.ray_dag import RayDagTarget


def seconds(ranks: int, microbatches: int) -> tuple[int, float]:
    """The operations of 1F1B, and the seconds from the first bind to a graph that runs; the ranks have started."""
    schedule = piper.load("1f1b", p=ranks, m=microbatches)
    found: list[float] = []

    def timed(*arguments: Any) -> None:
        start = time.perf_counter()
        compiled(*arguments)
        found.append(time.perf_counter() - start)

    compiled = RayDagTarget._compile
    arguments = {"loss_fn": step_model.loss, "optimizer": step_model.optimizer, "target": "ray-dag"}
    with (
        mock.patch.object(RayDagTarget, "_compile", timed),
        piper.Pipeline(step_model.stages(ranks), schedule, **arguments) as pipeline,
    ):
        pipeline.step(*step_model.batch(microbatches))
    return len(schedule), found[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", action="append", help="ranks x microbatches; may be given several times")
    sizes = [tuple(map(int, size.split("x"))) for size in parser.parse_args().size or ("4x16", "4x64", "8x32")]
    ray.init(address="local", num_cpus=max(ranks for ranks, _ in sizes), include_dashboard=False, logging_level="ERROR")
    table = Table(title="from binds to a compiled graph")
    for heading in ("ranks x microbatches", "operations", "seconds"):
        table.add_column(heading, justify="right")
    for ranks, microbatches in sizes:
        operations, taken = seconds(ranks, microbatches)
        table.add_row(f"{ranks}x{microbatches}", str(operations), f"{taken:.2f}")
    ray.shutdown()
    Console().print(table)


if __name__ == "__main__":
    main()
