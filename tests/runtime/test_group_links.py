"""Ranks over process groups, as on several machines: the same numbers, and sizes that are learnt."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from runtime_models import WIDTH, Fickle, Moody, Scribble, Tag, mixed, mixed_batch
from runtime_reference import EXACT, close, whole_gradients
from torch import nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]

import piper_dsl as piper
from piper_dsl.lower import lower
from piper_dsl.runtime.batch import signature, split_batch
from piper_dsl.runtime.launch import rank_specs
from piper_dsl.runtime.rank import Rank
from piper_dsl.runtime.settings import Settings
from piper_dsl.targets import group_links, meeting, wire
from piper_dsl.targets.groups import WirePlan
from piper_dsl.targets.interpreter import Interpreter

MSE = nn.functional.mse_loss
SCHEDULES = {name: piper.load(name, p=2, m=4) for name in ("1f1b", "interleaved_1f1b", "zb_v")}
TRANSPORTS = ["buffered", "direction", "pair"]
Data = tuple[torch.Tensor, torch.Tensor]
Results = list[Any]
"""Of a rank by step: its losses, or what failed, None where that was elsewhere."""
Found = Mapping[tuple[str, str], tuple[Results, Results]]
"""Of both ranks, by job and transport."""


@dataclass(frozen=True)
class _Job:
    """What two ranks run."""

    schedule: piper.Schedule
    stages: list[nn.Module]
    batches: Sequence[Data]


def _changing(schedule: piper.Schedule) -> _Job:
    """Data of more kinds than are remembered at a time."""
    return _Job(schedule, mixed(schedule.stages), [mixed_batch(size, size) for size in (4, 8, 4, 12, 4, 4, 8)])


def _scribbling() -> _Job:
    x = torch.linspace(0, 1, 8 * WIDTH, dtype=torch.float64).view(8, WIDTH)
    return _Job(SCHEDULES["1f1b"], [Tag().double(), Scribble().double()], [(x, x), (1 - x, x)])


def _moody(first: nn.Module) -> _Job:
    """The second step fails: its last two microbatches give another result than those of the first."""
    x = torch.linspace(0, 1, 8 * WIDTH).view(8, WIDTH)
    large = x + torch.tensor([0, 0, 0, 0, 99, 99, 99, 99])[:, None]
    return _Job(SCHEDULES["1f1b"], [first, nn.Identity()], [(x, x), (large, x), (x, x)])


def _ranks(rank: int, ports: Mapping[tuple[str, str], int], jobs: Mapping[str, _Job], results: Any) -> None:
    """One rank of all jobs on all transports, in a process of its own."""
    torch.set_num_threads(1)
    meeting.Meeting.near = lambda *_: set()  # type: ignore[method-assign]
    group_links.KNOWN = 2
    results.put((rank, {(name, how): _run(rank, port, jobs[name], how) for (name, how), port in ports.items()}))


def _run(rank: int, port: int, job: _Job, transport: str) -> Results:
    schedule, program = job.schedule, lower(job.schedule)
    runner = Rank(rank_specs(job.stages, schedule, program, MSE, None, Settings())[rank])
    plan = WirePlan("127.0.0.1", port, 2, "cpu", ((0, 1), (1, 0)), (), transport)
    interpreter = Interpreter(runner, program, wire.Wire(rank, plan, "here"))
    found: Results = []
    for step, batch in enumerate(job.batches):
        cut = split_batch(step, *batch, schedule.microbatches, schedule.graph, schedule.placement)
        if interpreter.run(cut[rank], signature(cut)):
            found.append(runner.report().losses)
        else:
            found.append(interpreter.failure and str(interpreter.failure))
        runner.drop()
    # Who leaves early looks like one who died.
    dist.barrier()
    dist.destroy_process_group()
    return found


@pytest.fixture(scope="module")
def jobs() -> Mapping[str, _Job]:
    changing = {name: _changing(schedule) for name, schedule in SCHEDULES.items()}
    return {**changing, "scribbling": _scribbling(), "moody": _moody(Moody()), "fickle": _moody(Fickle())}


@pytest.fixture(scope="module")
def found(jobs: Mapping[str, _Job]) -> Found:
    """What both ranks say of every step."""
    processes = multiprocessing.get_context("spawn")
    results = processes.Queue()
    keys = [(name, transport) for name in jobs for transport in TRANSPORTS]
    stores = {key: TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for key in keys}
    ports = {key: store.port for key, store in stores.items()}
    ranks = [processes.Process(target=_ranks, args=(rank, ports, jobs, results)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    try:
        by_rank = dict(results.get(timeout=100) for _ in ranks)
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
    return {key: (by_rank[0][key], by_rank[1][key]) for key in keys}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("name", [*SCHEDULES, "scribbling"])
def test_data_of_other_shapes_and_back_has_the_losses_of_one_process(
    name: str, transport: str, jobs: Mapping[str, _Job], found: Found
) -> None:
    job = jobs[name]
    wanted = [loss for batch in job.batches for loss in whole_gradients(job.stages, MSE, [batch])[0]]
    steps = zip(*found[name, transport], strict=True)
    assert [sum((one | other).values()) / 4 for one, other in steps] == close(wanted, EXACT)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("name", "before", "now"),
    [
        ("moody", "torch.float32 (2, 3)", "torch.float32 (2, 2)"),
        ("fickle", "torch.float32 (2, 3) that needs a gradient", "torch.float32 (2, 3)"),
    ],
)
def test_a_result_that_is_not_as_before_is_an_error_and_not_the_end(
    name: str, before: str, now: str, transport: str, found: Found
) -> None:
    first, last = found[name, transport]
    assert first[1] == (
        f"rank 0: stage 0, forward (F) of microbatch 2: ValueError: the result was {before} in "
        f"earlier steps with data of this shape; now it is {now}"
    )
    assert last[1] is None
    assert last[0] == last[2]
