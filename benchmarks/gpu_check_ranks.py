"""One process a rank, each of which interprets its Program: what target ray-program does, without Ray."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import gpu_check_parts as parts
import torch
import torch.multiprocessing as mp
from torch.distributed import TCPStore

import piper_dsl as piper
from piper_dsl.lower import lower
from piper_dsl.lower.program import Code, Program
from piper_dsl.runtime.batch import signature
from piper_dsl.runtime.measure import StepReport
from piper_dsl.runtime.rank import Rank
from piper_dsl.runtime.spec import Batch, RankSpec
from piper_dsl.targets.groups import WirePlan
from piper_dsl.targets.interpreter import Interpreter
from piper_dsl.targets.wire import Wire

LOCALHOST = "127.0.0.1"


@dataclass(frozen=True)
class _Job:
    """A schedule as all of its ranks get it, with the data of some steps."""

    specs: list[RankSpec]
    program: Program
    plan: WirePlan
    batches: list[list[Batch]]


def run_ranks(
    schedules: Sequence[piper.Schedule], device: str, steps: int, transport: str
) -> list[tuple[StepReport, parts.ByStage]]:
    """For schedules of as many ranks: the last of some steps, and the gradients of all of them together."""
    ranks = schedules[0].ranks
    stores = [TCPStore(LOCALHOST, 0, is_master=True, wait_for_workers=False) for _ in schedules]
    jobs = [
        _job(schedule, device, store.port, steps, transport) for schedule, store in zip(schedules, stores, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_rank, (jobs, folder), nprocs=ranks)
        by_rank = [torch.load(Path(folder) / str(rank), weights_only=False) for rank in range(ranks)]
    found = []
    for schedule, results in zip(schedules, zip(*by_rank, strict=True), strict=True):
        report = StepReport(schedule, tuple(one for one, _ in results), 0.0)
        found.append((report, parts.summed(schedule, parts.model(schedule.stages), [own for _, own in results])))
    return found


def _job(schedule: piper.Schedule, device: str, port: int, steps: int, transport: str) -> _Job:
    program = lower(schedule)
    sends = ((rank, i.peer) for rank, i in program.in_order() if i.code in (Code.SEND_F, Code.SEND_B))
    pairs = tuple(sorted({(rank, peer) for rank, peer in sends if peer is not None}))
    plan = WirePlan(LOCALHOST, port, schedule.ranks, device, pairs, (), transport)
    data = parts.batch(schedule.microbatches)
    batches = [parts.batches_of(schedule, data, step) for step in range(steps)]
    return _Job(parts.specs_of(schedule, parts.model(schedule.stages), "cpu"), program, plan, batches)


def _rank(number: int, jobs: list[_Job], folder: str) -> None:
    torch.set_num_threads(1)
    if jobs[0].plan.device == "cuda":
        torch.cuda.set_device(number)
    torch.save([_result(number, job) for job in jobs], Path(folder) / str(number))


def _result(number: int, job: _Job) -> tuple[object, object]:
    """The report of the last step of a rank, and its gradients."""
    rank = Rank(replace(job.specs[number], device=job.plan.device))
    interpreter = Interpreter(rank, job.program, Wire(number, job.plan, "here"))
    for step in job.batches:
        if not interpreter.run(step[number], signature(step)):
            raise RuntimeError(f"rank {number}: {interpreter.failure}")
        rank.updates.keep()
        report = rank.report()
    if torch.distributed.is_initialized():
        # Who leaves early looks like one who died.
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    return report, rank.gradients()
