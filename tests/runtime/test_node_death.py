"""A node that is lost in mid-step, with all that ran there: told of, replaced where there is another.

It takes minutes, so it is done where ``PIPER_NODES=1`` is in the environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAID = [
    "P713 the other rank died during the step",
    "as undisturbed",
    "P713 the rank that slept died during the step | P714 2 ranks need 2 CPUs, one each; Ray has 1 free of 1",
]


@pytest.mark.skipif(not os.environ.get("PIPER_NODES"), reason="PIPER_NODES=1 does it")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("target", ["ray-program", "ray-dag"])
def test_a_node_that_is_lost_is_told_by_its_rank_and_replaced_where_one_is_left(target: str, tmp_path: Path) -> None:
    script = Path(__file__).with_name("node_death.py")
    path = os.pathsep.join(filter(None, [str(script.parent), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, str(script), target, str(tmp_path / "said")],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert (tmp_path / "said").read_text().splitlines() == SAID, done.stderr
