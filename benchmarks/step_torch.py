"""One rank of torch.distributed.pipelining, for `step_time.py`: run by torchrun, prints seconds a step as JSON."""

from __future__ import annotations

import json
import sys
import time

import step_model
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def main() -> None:
    microbatches, steps, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    module = step_model.stages(ranks)[rank]
    schedule = Schedule1F1B(
        PipelineStage(module, rank, ranks, torch.device("cpu")), microbatches, loss_fn=step_model.loss
    )
    optimizer = step_model.optimizer(list(module.parameters()))
    x, y = step_model.batch(microbatches)
    seconds: list[float] = []
    losses: list[torch.Tensor] = []
    for _ in range(steps):
        dist.barrier()
        start = time.perf_counter()
        losses.clear()
        if rank == 0:
            schedule.step(x)
        elif rank == ranks - 1:
            schedule.step(target=y, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
        seconds.append(time.perf_counter() - start)
    if rank == ranks - 1:
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"seconds": seconds, "loss": torch.stack(losses).mean().item()}, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
