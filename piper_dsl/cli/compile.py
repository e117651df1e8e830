"""piper-dsl compile: what a target will run."""

from __future__ import annotations

import json
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ..diagnostics import Diagnostic, PipeError
from ..expand import DEFAULT_MAX_OPS
from ..interop import write_csv
from ..interop.pipe_text import to_pipe
from ..ir.operations import BACKWARD, Kind
from ..lower import Program
from ..lower.binds import BindPlan, plan_binds
from .common import (
    File,
    Format,
    FormatOption,
    MaxOps,
    Parameters,
    checked,
    errors,
    say_wrote,
    write_text,
)
from .options import Sending, grouped


class CompileTarget(str, Enum):
    """What to compile for."""

    RAY_DAG = "ray-dag"
    PYTHON = "python"
    JSON = "json"
    PIPE = "pipe"
    TORCH_CSV = "torch-csv"


@grouped
def compile(
    file: File,
    target: Annotated[CompileTarget, typer.Option("--target", help="What to compile for.")] = CompileTarget.RAY_DAG,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write here instead of standard output.")
    ] = None,
    param: Parameters = None,
    *,
    sending: Sending,
    lossy: Annotated[bool, typer.Option("--lossy", help="Leave out what the target cannot say.")] = False,
    format: FormatOption = Format.TEXT,
    max_ops: MaxOps = DEFAULT_MAX_OPS,
) -> None:
    """Compile a schedule: report the binds of the Ray DAG, or write a Python script or the Program.

    ray-dag lists one bind for every operation, in the order they are made. python writes a script with
    those binds spelled out, which runs by itself. json writes the Program: one instruction list per rank.
    pipe writes the operations of every rank as a .pipe file. torch-csv writes PyTorch's schedule CSV, which
    has no optimizer steps: --lossy leaves them out.

    Example: piper-dsl compile 1f1b -p p=2 -p m=4 --target python -o train.py
    """
    from ..lower import lower

    with errors():
        schedule = checked(file, param, max_ops, sending.transport)
        if target is CompileTarget.PYTHON and schedule.ties:
            message = "target python: the script does not sum the gradients of tied stages"
            raise PipeError(Diagnostic("P702", message, None, "train with `piper_dsl.Pipeline`"))
        if target in (CompileTarget.PIPE, CompileTarget.TORCH_CSV):
            text = to_pipe(schedule) if target is CompileTarget.PIPE else write_csv(schedule, lossy=lossy)
        else:
            text = _compiled(lower(schedule, sending.transport, sending.placement), target, format)
        if output is None:
            sys.stdout.write(text)
        else:
            write_text(output, text)
            say_wrote(output)


def _compiled(program: Program, target: CompileTarget, format: Format) -> str:
    from ..targets.python_source import bind_lines, python_source

    if target is CompileTarget.JSON:
        return program.to_json() + "\n"
    plan = plan_binds(program)
    if target is CompileTarget.PYTHON:
        _require_steps(plan)
        if any(len(copies) > 1 for copies in program.placement.copies):
            message = "target python: the script does not sum the gradients of stages with copies on several ranks"
            raise PipeError(Diagnostic("P702", message, None, "train with `piper-dsl run`"))
        return python_source(program, plan)
    if format is Format.JSON:
        return _json(program, plan)
    crossing = sum(len(bind.targets) for bind in plan.binds)
    summary = f"{program.name}: {len(plan.binds)} binds on {program.ranks} actors, {crossing} edges between actors"
    return "\n".join([summary, *bind_lines(plan)]) + "\n"


def _require_steps(plan: BindPlan) -> None:
    """Raises PipeError (P702) for a plan with backwards and no OPT: the script would train nothing, silently."""
    kinds = {bind.operation.kind for bind in plan.binds}
    if kinds & set(BACKWARD) and Kind.OPT not in kinds:
        message = "target python: the schedule has backwards and no OPT: the optimizer would never step"
        raise PipeError(Diagnostic("P702", message, None, "write OPT for every stage"))


def _json(program: Program, plan: BindPlan) -> str:
    binds = [
        {
            "results": bind.results,
            "rank": bind.rank,
            "method": bind.method,
            "operation": str(bind.operation),
            "sources": bind.sources,
            "between_actors": bind.receives,
        }
        for bind in plan.binds
    ]
    return json.dumps({"name": program.name, "ranks": program.ranks, "binds": binds}, indent=2) + "\n"
