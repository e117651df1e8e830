"""One rank of torch.distributed.pipelining with stages that sleep, for `fidelity.py`: run by torchrun.

Writes the seconds of every step, its optimizer included, between two barriers, and the naps of every step and rank.
"""

from __future__ import annotations

import json
import sys
import time

import torch
import torch.distributed as dist
from sleep_model import NAPS, Sleeper, sgd
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def main() -> None:
    microbatches, steps, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = Sleeper()
    optimizer = sgd(model.parameters())
    stage = PipelineStage(model, rank, ranks, torch.device("cpu"))
    schedule = Schedule1F1B(stage, microbatches, loss_fn=nn.functional.mse_loss)
    x = torch.ones(microbatches, 1)
    found = []
    for _ in range(steps):
        dist.barrier()
        NAPS.clear()
        start = time.perf_counter()
        schedule.step(*([x] if rank == 0 else []), **({"target": x} if rank == ranks - 1 else {}))
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
        naps: list[object] = [None] * ranks
        seconds = time.perf_counter() - start
        dist.all_gather_object(naps, (NAPS[0][0], NAPS[-1][1]))
        found.append((seconds, naps))
    if rank == 0:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(found, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
