"""Clusters that run already: two nodes, and none that answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def test_two_nodes_train_as_one_process_with_activations_beyond_every_default_buffer() -> None:
    script = Path(__file__).with_name("two_nodes.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=110, check=False)
    assert done.stdout.splitlines() == ["ray-program agrees", "ray-dag agrees", "command line: 0"], done.stderr


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:9", "no Ray cluster answers at 127.0.0.1:9: "),
        ("nowhere", "no Ray cluster answers at nowhere: "),
        ("host:port", "no Ray cluster answers at host:port: "),
    ],
)
def test_a_cluster_that_does_not_answer_is_told_of_at_once(address: str, said: str) -> None:
    command = [sys.executable, "-m", "piper_dsl", "run", "1f1b", "-p", "p=2", "--address", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"error[P714]: {said}" in done.stderr
    assert "Traceback" not in done.stderr
