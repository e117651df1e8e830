"""Clusters that run already: two nodes, and none that answers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

SAID = """\
ray-program agrees
ray-dag agrees
[1, 2, 1]
P714 3 ranks need 3 GPUs, one each; Ray has 2 free of 2
P714 2 ranks need 2 GPUs, one each; Ray has 1 free of 2
P714 3 ranks with 1 CPU each find no place on the nodes (strategy `strict-spread`)
node A has 2 CPUs | node A has 2 CPUs
command line: 0
"""


@pytest.mark.timeout(300)
def test_two_nodes_train_as_one_process_with_ranks_where_they_are_asked_for() -> None:
    # The activations are beyond every default buffer (case G5).
    script = Path(__file__).with_name("two_nodes.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=280, check=False)
    assert done.stdout == SAID, done.stderr


RUN = [sys.executable, "-m", "piper_dsl", "run", "1f1b", "-p", "p=2"]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        # A name that no resolver may know (RFC 2606), though some answer for every name.
        ("head.invalid:6379", "no Ray cluster answers at head.invalid:6379: "),
        ("head", "no Ray cluster answers at head: write HOST:PORT, as in 10.0.0.1:6379, or auto"),
        (":6379", "no Ray cluster answers at :6379: write HOST:PORT"),
        ("host:port", "no Ray cluster answers at host:port: write HOST:PORT"),
        ("ray://127.0.0.1:10001", "not through a Ray client"),
    ],
)
def test_a_cluster_that_does_not_answer_is_told_of_at_once(address: str, said: str) -> None:
    _assert_no_cluster([*RUN, "--address", address], said)


def test_a_port_where_nothing_listens_is_no_cluster() -> None:
    # Bound and not listening: nobody else can open it meanwhile.
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        _assert_no_cluster([*RUN, "--address", address], f"no Ray cluster answers at {address}: ")


def test_something_else_that_answers_is_no_cluster_whoever_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_as_ssh, args=(server,), daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        _assert_no_cluster(RUN, f"no Ray cluster answers at {address}: what listens there", RAY_ADDRESS=address)


def _as_ssh(server: socket.socket) -> None:
    connection, _ = server.accept()
    connection.sendall(b"SSH-2.0-OpenSSH\r\n")


def _assert_no_cluster(command: list[str], said: str, **environment: str) -> None:
    environment = {**os.environ, "COLUMNS": "200", **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 1
    assert done.stderr.startswith("error[P714]: no Ray cluster answers at ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
