"""Ranks over process groups, as on several machines: the same numbers, and sizes that are learnt."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from runtime_models import WIDTH, Moody, mixed, mixed_batch
from runtime_reference import EXACT, close, whole_gradients
from torch import nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]

import piper_dsl as piper
from piper_dsl.lower import lower
from piper_dsl.runtime.batch import signature, split_batch
from piper_dsl.runtime.launch import rank_specs
from piper_dsl.runtime.rank import Rank
from piper_dsl.runtime.settings import Settings
from piper_dsl.targets import group_links, wire
from piper_dsl.targets.groups import WirePlan
from piper_dsl.targets.interpreter import Interpreter

SCHEDULE = piper.load("1f1b", p=2, m=2)
MSE = nn.functional.mse_loss
Data = tuple[torch.Tensor, torch.Tensor]


def _rank(rank: int, port: int, stages: list[nn.Module], batches: Sequence[Data], results: Any) -> None:
    """One rank in a process of its own; by step its losses, or what failed, None where that was elsewhere."""
    torch.set_num_threads(1)
    wire.on_one_machine = lambda *_: False
    group_links.KNOWN = 2
    program = lower(SCHEDULE)
    runner = Rank(rank_specs(stages, SCHEDULE, program, MSE, None, Settings())[rank])
    plan = WirePlan("127.0.0.1", port, 2, "cpu", ((0, 1), (1, 0)), (), False)
    interpreter = Interpreter(runner, program, wire.Wire(rank, plan))
    found: list[Any] = []
    for step, batch in enumerate(batches):
        cut = split_batch(step, *batch, 2, SCHEDULE.graph, SCHEDULE.placement)
        if interpreter.run(replace(cut[rank], training=True), signature(cut)):
            found.append(runner.report().losses)
        else:
            found.append(interpreter.failure and str(interpreter.failure))
        runner.drop()
    results.put((rank, found))


def _run(stages: list[nn.Module], batches: Sequence[Data]) -> list[list[Any]]:
    """What both ranks say of every step."""
    processes = multiprocessing.get_context("spawn")
    results = processes.Queue()
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks = [processes.Process(target=_rank, args=(r, store.port, stages, batches, results)) for r in range(2)]
    for rank in ranks:
        rank.start()
    try:
        return [found for _, found in sorted(results.get(timeout=60) for _ in ranks)]
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()


def test_data_of_other_shapes_and_back_has_the_losses_of_one_process() -> None:
    # More kinds of data than are remembered at a time.
    batches = [mixed_batch(size, size) for size in (4, 8, 4, 6, 4, 4, 2, 8)]
    wanted = [loss for batch in batches for loss in whole_gradients(mixed(2), MSE, [batch])[0]]
    _, last = _run(mixed(2), batches)
    assert [sum(losses.values()) / 2 for losses in last] == close(wanted, EXACT)


def test_a_result_of_another_shape_than_before_is_an_error_and_not_the_end() -> None:
    x = torch.rand(4, WIDTH)
    large = x * torch.tensor([1.0, 1.0, 99.0, 99.0])[:, None]
    first, last = _run([Moody(), nn.Linear(WIDTH, WIDTH)], [(x, x), (large, x), (x, x)])
    assert first[1] == (
        "rank 0: stage 0, forward (F) of microbatch 1: ValueError: the result was torch.float32 (2, 3) in "
        "earlier steps with data of this shape; now it is torch.float32 (2, 2)"
    )
    assert last[1] is None
    assert last[0] == last[2]
