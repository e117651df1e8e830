"""What the order of messages costs on accelerator edges of Ray's compiled graphs: ours, Ray's, and what was predicted.

Stages sleep, 20 ms forward and 40 ms backward, so cores do not matter. Messages go through gloo, which blocks as a
receive on a GPU's only stream does. The span of a step is measured on the actors, from the first start to the last
end, and compared with the ideal and with the simulation on transport `ray-accelerator`.

    python benchmarks/ray_order.py                 # interleaved 1F1B, p=4 m=8 v=2
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from rich.console import Console
from rich.table import Table
from sleep_model import BACKWARD, FORWARD, Sleeper, sgd
from torch import nn

import piper_dsl as piper
from piper_dsl.targets import ray_dag

STEPS = 4


def measured(schedule: piper.Schedule) -> float:
    """The shortest span of some steps, in seconds, without the first."""
    batch, target = torch.ones(schedule.microbatches, 1, requires_grad=True), torch.ones(schedule.microbatches, 1)
    stages = [Sleeper() for _ in range(schedule.stages)]
    arguments: dict[str, Any] = {"loss_fn": nn.MSELoss(), "optimizer": sgd, "target": "ray-dag", "transport": "gloo"}
    spans = []
    with piper.Pipeline(stages, schedule, **arguments) as pipeline:
        for _ in range(STEPS):
            pipeline.step(batch.detach(), target)
            assert pipeline.last is not None
            spans.append(pipeline.last.makespan)
    return min(spans[1:])


def _by_ray(graph: Any, rows: Any, actors: Any, loss: Any, **options: Any) -> Any:
    return graph.experimental_compile(**options)


def main() -> None:
    import ray

    ray.init(address="local", num_cpus=8, include_dashboard=False, log_to_driver=False)
    schedule = piper.load("interleaved_1f1b", p=4, m=8, v=2)
    costs = piper.Costs(F=FORWARD, B=BACKWARD)
    ideal = piper.simulate(schedule, costs).makespan
    table = Table(title=f"{schedule.name}, p=4 m=8 v=2, stages that sleep: the ideal is {ideal:.2f} s")
    for heading in ("order", "predicted", "measured", "of the ideal"):
        table.add_column(heading, justify="left" if heading == "order" else "right")
    for name, placement in (("ours", "event"), ("Ray's", "ray")):
        predicted = piper.simulate(schedule, costs, "ray-accelerator", placement).makespan
        if placement == "ray":
            with mock.patch.object(ray_dag, "compile_in_order", _by_ray):
                seconds = measured(schedule)
        else:
            seconds = measured(schedule)
        table.add_row(name, f"{predicted:.2f} s", f"{seconds:.2f} s", f"{seconds / ideal:.2f}")
    ray.shutdown()
    Console().print(table)


if __name__ == "__main__":
    main()
