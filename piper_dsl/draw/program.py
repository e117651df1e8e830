"""The program that turns DOT into files: the system's Graphviz, else the one that comes with this package."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import DrawError

__all__ = ["Program", "find_program", "render"]

_TIMEOUT = 120.0
_INSTALL = "install Graphviz (https://graphviz.org/download) or run `pip install graphviz-pure`"


@dataclass(frozen=True)
class Program:
    """A command that lays out DOT from its standard input; ``pdf`` says whether it can write PDF."""

    command: tuple[str, ...]
    pdf: bool


def find_program() -> Program:
    """Graphviz on PATH, else ``graphviz-pure`` beside the Python interpreter or on PATH.

    Raises :class:`DrawError` where there is neither.
    """
    system = shutil.which("neato") or shutil.which("dot")
    if system:
        return Program((system, "-Kneato"), pdf=True)
    bundled = shutil.which("graphviz-pure", path=str(Path(sys.executable).parent)) or shutil.which("graphviz-pure")
    if bundled:
        return Program((bundled, "-Kneato"), pdf=False)
    raise DrawError("there is no Graphviz to draw with", _INSTALL)


def render(source: str, format: str, options: Sequence[str] = (), timeout: float = _TIMEOUT) -> bytes:
    """DOT with fixed positions as the bytes of an ``svg``, ``png`` or ``pdf`` file; ``timeout`` in seconds.

    Raises :class:`DrawError` where no program can do it, or the one found fails or takes too long.
    """
    program = find_program()
    if format == "pdf" and not program.pdf:
        raise DrawError("only the system's Graphviz writes .pdf", "install it, or draw an .svg")
    command = [*program.command, "-n2", f"-T{format}", *options]
    name = Path(program.command[0]).name
    try:
        done = subprocess.run(command, input=source.encode(), capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise DrawError(f"{name} took more than {timeout:g} s", "draw a .dot file and render it yourself") from None
    except OSError as error:
        raise DrawError(f"{name} does not start: {error.strerror}", _INSTALL) from error
    if done.returncode or not done.stdout:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"]
        raise DrawError(f"{name} failed: {said[-1]}", "draw a .dot file to see what it was given")
    return done.stdout
