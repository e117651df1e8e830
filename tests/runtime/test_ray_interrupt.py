"""Ctrl-C and SIGTERM in mid-step, and limits of Ray's own that must not end a step: in processes of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from runtime_processes import alive, descendants, eventually

HERE = Path(__file__).parent
PROMPT = 10.0
"""Seconds from Ctrl-C to the end of the process, Ray's own shutdown included."""

LOOP = """
import time
import torch
from torch import nn
import piper_dsl as piper
from runtime_models import WIDTH, Bare, first_and_last

class Slow(Bare):
    def forward(self, hidden):
        time.sleep(hidden.max().item())
        return hidden * 1.0

schedule = piper.load("1f1b", p=2, m=2)
with piper.Pipeline(
    [nn.Identity(), Slow()], schedule, loss_fn=first_and_last, optimizer=torch.optim.SGD, target="TARGET"
) as pipeline:
    for seconds in (0.0, 1.5, 300.0):
        print("step", seconds, flush=True)
        pipeline.step(torch.full((2, WIDTH), seconds), torch.zeros(2, WIDTH))
"""


MODEL = """
import pathlib
import time
import torch
from torch import nn

class Slow(nn.Linear):
    def forward(self, x):
        if x.max() > 1e3:
            pathlib.Path("asleep").touch()
            time.sleep(300)
        return super().forward(x)

def stages(count):
    return [Slow(3, 3) for _ in range(count)]

def batches(size):
    for scale in (1.0, 1e6):
        x = torch.rand(size, 3) * scale
        yield x, x
"""


@contextmanager
def _running(arguments: list[str], folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process in a process group of its own, as from a terminal."""
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        family = descendants(process.pid)
        process.kill()
        process.communicate()
        for pid in alive(family):
            os.kill(pid, signal.SIGKILL)


def _interrupted(process: subprocess.Popen[str], to_group: bool) -> str:
    """Sends Ctrl-C; asserts that the process ends soon and none of its own stays. What it wrote on stderr."""
    family = descendants(process.pid)
    assert len(family) >= 4  # two ranks, and Ray's own
    started = time.monotonic()
    if to_group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PROMPT)
    assert time.monotonic() - started < PROMPT
    assert eventually(lambda: not alive(family), 5), sorted(alive(family))
    assert _left_in_shared_memory(family | {process.pid}) == []
    return errors


def _left_in_shared_memory(pids: set[int]) -> list[str]:
    """Files named after one of the processes; the semaphores that Ray leaves (see docs/running.md) are not ours."""
    numbers = {str(pid) for pid in pids}
    names = [name for name in os.listdir("/dev/shm") if not name.startswith(("sem.hdr", "sem.obj"))]
    return [name for name in names if numbers & set(re.findall(r"\d+", name))]


def _lines_until(process: subprocess.Popen[str], last: str) -> list[str]:
    lines: list[str] = []
    while not lines or lines[-1] != last:
        line = process.stdout.readline()
        assert line, f"ended after {lines}: {process.stderr.read()}"
        lines.append(line.strip())
    return lines


@pytest.mark.parametrize("target", ["ray-dag", "ray-program"])
def test_ctrl_c_in_mid_step_ends_a_script(target: str, tmp_path: Path) -> None:
    # Ray's own time-outs are set to a second; the slow step, of 1.5 seconds an operation, goes through (case G9).
    environment = {"RAY_CGRAPH_get_timeout": "1", "RAY_CGRAPH_submit_timeout": "1"}
    with _running(["-c", LOOP.replace("TARGET", target)], tmp_path, **environment) as process:
        assert _lines_until(process, "step 300.0") == ["step 0.0", "step 1.5", "step 300.0"]
        time.sleep(1.0)
        errors = _interrupted(process, to_group=False)
        assert process.returncode != 0
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert "PipeError" not in errors


def test_ctrl_c_in_mid_step_ends_the_command_line(tmp_path: Path) -> None:
    # To the whole group, as a terminal does.
    (tmp_path / "mine.py").write_text(MODEL)
    main = "from piper_dsl.cli.main import main; main()"
    options = ["--model", "mine:stages", "--data", "mine:batches", "--loss", "torch.nn.functional:mse_loss"]
    arguments = ["-c", main, "run", "1f1b", "-p", "p=2", "-p", "m=2", *options]
    with _running(arguments, tmp_path) as process:
        assert eventually((tmp_path / "asleep").exists, 60), process.poll()
        time.sleep(0.5)
        errors = _interrupted(process, to_group=True)
        assert process.returncode in (1, 130)
        assert "Traceback" not in errors
        assert "error[" not in errors


def test_sigterm_ends_the_command_line_behind_the_step_with_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODEL.replace("time.sleep(300)", "time.sleep(2)"))
    main = "from piper_dsl.cli.main import main; main()"
    options = ["--model", "mine:stages", "--data", "mine:batches", "--loss", "torch.nn.functional:mse_loss"]
    arguments = ["-c", main, "run", "1f1b", "-p", "p=2", "-p", "m=2", *options, "--checkpoints", "saved"]
    with _running(arguments, tmp_path) as process:
        assert eventually((tmp_path / "asleep").exists, 90), process.poll()
        family = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 143
        assert output == ""
        assert errors == "ended by SIGTERM, with a checkpoint of step 2\n"
        assert eventually(lambda: not alive(family), 5), sorted(alive(family))
    assert [path.name for path in (tmp_path / "saved").iterdir()] == ["step-2"]
    assert _left_in_shared_memory(family | {process.pid}) == []
