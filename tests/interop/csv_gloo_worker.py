"""One process of PyTorch's pipeline runtime: ``csv_gloo_worker.py RANK JOB``, the job a JSON file.

Runs one training step of every CSV of the job on gloo and saves what was done and the gradients.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from csv_model import batch, loss, stage_module
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime


def watched(stage: PipelineStage, log: list[str]) -> PipelineStage:
    """The stage, which notes what is called on it, in PyTorch's tokens."""
    forward, backward, weight = stage.forward_one_chunk, stage.backward_one_chunk, stage.backward_weight_one_chunk

    def forward_one_chunk(microbatch: int, *args: Any, **options: Any) -> Any:
        log.append(f"{stage.stage_index}F{microbatch}")
        return forward(microbatch, *args, **options)

    def backward_one_chunk(microbatch: int, loss: Any = None, full_backward: bool = True, **options: Any) -> Any:
        log.append(f"{stage.stage_index}{'B' if full_backward else 'I'}{microbatch}")
        return backward(microbatch, loss=loss, full_backward=full_backward, **options)

    def backward_weight_one_chunk(microbatch: int, **options: Any) -> Any:
        log.append(f"{stage.stage_index}W{microbatch}")
        return weight(microbatch, **options)

    stage.forward_one_chunk, stage.backward_one_chunk = forward_one_chunk, backward_one_chunk
    stage.backward_weight_one_chunk = backward_weight_one_chunk
    return stage


def step(rank: int, case: dict[str, Any]) -> dict[str, Any]:
    stages, microbatches = case["stages"], case["microbatches"]
    log: list[str] = []
    modules = {stage: stage_module(stage, stages) for stage in case["owned"][rank]}
    parts = [
        watched(PipelineStage(module, stage, stages, torch.device("cpu")), log) for stage, module in modules.items()
    ]
    schedule = _PipelineScheduleRuntime(parts, microbatches, loss_fn=loss)
    schedule._load_csv(case["csv"], format=case["form"])
    inputs, targets = batch(microbatches)
    losses: list[torch.Tensor] = []
    schedule.step(*([inputs] if 0 in modules else []), target=targets if stages - 1 in modules else None, losses=losses)
    return {
        "done": log,
        "losses": [value.item() for value in losses],
        "gradients": {s: [p.grad.clone() for p in module.parameters()] for s, module in modules.items()},
    }


def main(rank: int, job: Path) -> None:
    torch.set_num_threads(1)
    work = json.loads(job.read_text())
    store = dist.FileStore(str(job.with_suffix(".store")), work["ranks"])
    dist.init_process_group("gloo", store=store, rank=rank, world_size=work["ranks"], timeout=timedelta(seconds=30))
    try:
        results = [step(rank, case) for case in work["cases"]]
    finally:
        dist.destroy_process_group()
    torch.save(results, job.with_suffix(f".{rank}.pt"))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
