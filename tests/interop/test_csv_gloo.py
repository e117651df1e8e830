"""PyTorch's pipeline runtime trains with our CSVs: real modules in processes on gloo, against one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from csv_orders import HERE, LOWERED, read, rows, text_of

import piper_dsl as piper
from piper_dsl.interop import write_csv

torch = pytest.importorskip("torch")
from csv_model import whole_step  # noqa: E402

SECONDS = 60


def run(folder: Path, schedules: list[piper.Schedule], forms: list[str]) -> list[list[dict[str, Any]]]:
    """One step of every schedule, in one process a rank; for every rank, a result for every schedule."""
    ranks = schedules[0].ranks
    cases = []
    for number, (schedule, form) in enumerate(zip(schedules, forms, strict=True)):
        file = folder / f"{number}.csv"
        file.write_text(write_csv(schedule, lossy=True), encoding="utf-8")
        sizes = {"stages": schedule.stages, "microbatches": schedule.microbatches}
        cases.append({"csv": str(file), "form": form, "owned": schedule.placement.owned, **sizes})
    job = folder / "job.json"
    job.write_text(json.dumps({"ranks": ranks, "cases": cases}))
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "csv_gloo_worker.py")]
    outputs = [(folder / f"{rank}.log").open("w+") for rank in range(ranks)]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(ranks):
            arguments = [*command, str(rank), str(job)]
            processes.append(
                subprocess.Popen(arguments, env=environment, stdout=outputs[rank], stderr=subprocess.STDOUT)
            )
        deadline = time.monotonic() + SECONDS
        while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
            if any(process.poll() for process in processes):
                break
            time.sleep(0.05)
        codes = [process.poll() for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for output in outputs:
            output.close()
    logs = "\n".join((folder / f"{rank}.log").read_text() for rank in range(ranks))
    assert codes == [0] * ranks, logs
    return [torch.load(job.with_suffix(f".{rank}.pt")) for rank in range(ranks)]


def compare(schedules: list[piper.Schedule], results: list[list[dict[str, Any]]]) -> None:
    """What was done is what the rows say, and losses and gradients are those of one process."""
    for number, schedule in enumerate(schedules):
        losses, gradients = whole_step(schedule.stages, schedule.microbatches)
        trained: dict[int, Any] = {}
        for rank, result in enumerate(results):
            computes = [str(o) for o in schedule.row(rank) if o.kind.name in "FBIW"]
            assert result[number]["done"] == computes, f"{schedule.name}, rank {rank}"
            trained |= result[number]["gradients"]
            if schedule.placement(schedule.stages - 1) == rank:
                torch.testing.assert_close(sorted(result[number]["losses"]), sorted(losses), rtol=1e-12, atol=1e-12)
        assert sorted(trained) == [*range(schedule.stages)]
        for stage, expected in gradients.items():
            torch.testing.assert_close(trained[stage], expected, rtol=1e-9, atol=1e-12)
            assert all(gradient.abs().max() > 1e-6 for gradient in expected)


def test_two_processes(tmp_path):
    names = ("gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v", "dualpipev")
    schedules = [piper.load(name, p=2, m=4) for name in names]
    lowered = read(text_of(LOWERED["interleaved_1f1b_p2m4_asap"]["ranks"]), "lowered.csv")
    forms = ["compute_only"] * len(schedules) + ["compute_comms"]
    schedules.append(lowered)
    assert any("OVERLAP" in cell for row in rows(schedules[5]) for cell in row)
    results = run(tmp_path, schedules, forms)
    compare(schedules, results)
    # The comparison can fail.
    results[1][1]["gradients"][1][0] *= 1.001
    with pytest.raises(AssertionError, match="not close"):
        compare(schedules, results)


def test_four_processes(tmp_path):
    schedules = [piper.load(name, p=4, m=8) for name in ("interleaved_1f1b", "zb_v")]
    compare(schedules, run(tmp_path, schedules, ["compute_only"] * 2))
