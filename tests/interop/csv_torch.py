"""PyTorch's side of the comparison: its schedule classes, parser, validator and lowering, without processes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from torch.distributed.pipelining import schedules as torch_schedules
from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops
from torch.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    Schedule1F1B,
    _Action,
    _ComputationType,
    _PipelineScheduleRuntime,
)
from torch.distributed.pipelining.stage import PipelineStage

import piper_dsl as piper

Rows = list[list["_Action | None"]]


def class_rows(name: str, p: int, m: int, v: int | None = None, **options: Any) -> Rows:
    """The order of a schedule class, as it gives it itself."""
    if name == "1F1B":
        return [_performed_1f1b(rank, p, m) for rank in range(p)]
    return get_schedule_ops(name, p, m, v, **options)


def _performed_1f1b(rank: int, p: int, m: int) -> list[_Action | None]:
    """What Schedule1F1B does in a step. (The order it reports has a wrong last rank in 2.13.)"""
    done: list[_Action | None] = []
    stage = mock.create_autospec(PipelineStage, instance=True)
    stage.stage_index, stage.num_stages, stage.group_size, stage.group_rank = rank, p, p, rank
    stage.is_first, stage.is_last, stage.submod = rank == 0, rank == p - 1, None
    for name in ("get_fwd_recv_ops", "get_fwd_send_ops", "get_bwd_recv_ops", "get_bwd_send_ops"):
        getattr(stage, name).return_value = []
    stage.forward_one_chunk.side_effect = lambda i, *_, **__: done.append(_Action(rank, _ComputationType.FORWARD, i))
    stage.backward_one_chunk.side_effect = lambda i, *_, **__: done.append(
        _Action(rank, _ComputationType.FULL_BACKWARD, i)
    )
    schedule = Schedule1F1B(stage, m)
    with mock.patch.object(schedule, "_initialize_stage"):
        schedule._step_microbatches([()] * m, [{}] * m)
    return done


def action(text: str) -> _Action:
    """The action of a token, built without PyTorch's parser."""
    if text.startswith("("):
        inner = text[1:].removesuffix(")OVERLAP_F_B").split(";")
        return _Action(-1, _ComputationType.OVERLAP_F_B, None, tuple(action(part) for part in inner))
    digits = len(text) - len(text.lstrip("0123456789"))
    kind = text[digits:].rstrip("0123456789")
    microbatch = text[digits + len(kind) :]
    return _Action(int(text[:digits]), _ComputationType(kind), int(microbatch) if microbatch else None)


def runtime(p: int, stages: int, m: int, **options: Any) -> _PipelineScheduleRuntime:
    """PyTorch's runtime without stages that could run."""
    stage = SimpleNamespace(num_stages=stages, group_size=p, group_rank=0, has_backward=True)
    return _PipelineScheduleRuntime([stage], m, **options)


def loaded(text: str, folder: Path, schedule: piper.Schedule, form: str) -> dict[int, list[Any]]:
    """The rows that PyTorch's runtime reads from a CSV, which it validates, and lowers where it can."""
    file = folder / "x.csv"
    file.write_text(text, encoding="utf-8")
    reader = runtime(schedule.ranks, schedule.stages, schedule.microbatches)
    if "\n\n" in f"\n{text}":  # a rank without operations, which its lowering cannot deal with
        PipelineScheduleMulti._load_csv(reader, str(file), format=form)
    else:
        reader._load_csv(str(file), format=form)
    return reader.pipeline_order if form == "compute_only" else reader.pipeline_order_with_comms


def validated(rows: list[list[str]], stages: int, m: int) -> dict[int, int]:
    """The rank of every stage by PyTorch's validator; it raises AssertionError for what it refuses."""
    order = {rank: [_Action.from_str(cell) for cell in row] for rank, row in enumerate(rows)}
    return torch_schedules._validate_schedule(order, len(rows), stages, m)
