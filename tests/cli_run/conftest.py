"""The command line in this process and in one of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from piper_dsl.cli.main import app

Invoke = Callable[..., Result]
Start = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, empty. Modules imported from it are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def invoke(folder: Path) -> Invoke:
    """``invoke("run", "1f1b", …)`` in this process."""

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(app, arguments)

    return call


@pytest.fixture
def start(folder: Path) -> Start:
    """Runs a Python program in a process of its own: ``start(["-m", "piper_dsl.cli.main", …])``."""

    def call(arguments: Sequence[str], seconds: float = 110.0) -> subprocess.CompletedProcess[str]:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env={**os.environ, "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, errors = process.communicate(timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        return subprocess.CompletedProcess(arguments, process.returncode, out, errors)

    return call
