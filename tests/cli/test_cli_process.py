"""The installed command as a process of its own: what it imports, and that its exit code leaves it."""

from __future__ import annotations

import os
import subprocess
import sys

BAD = "ranks 1\nmicrobatches 1\nrank 0: F0 → B0\n"


def _run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        input=BAD,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=60,
        env=os.environ | environment,
    )


def test_check_loads_neither_torch_nor_ray() -> None:
    code = """
import sys
from piper_dsl.cli.main import main
sys.argv = ["piper-dsl", "check", "1f1b"]
try:
    main()
finally:
    print(sorted({name.split(".")[0] for name in sys.modules} & {"torch", "ray", "numpy"}))
"""
    done = _run(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['numpy']"


def test_findings_leave_as_exit_code_one_on_standard_error() -> None:
    """Also on a terminal that knows ASCII only."""
    code = "import sys; sys.argv = ['piper-dsl', 'check', '-']; from piper_dsl.cli.main import main; main()"
    for encoding in ("utf-8", "ascii"):
        done = _run(code, PYTHONIOENCODING=encoding)
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        assert done.stderr.startswith("error[P101]: a character the language does not use: ")
        assert "Traceback" not in done.stderr
