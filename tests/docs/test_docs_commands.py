"""README and docs: what a block shows below a `$ command` is what the command prints; other commands run, or parse."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from piper_dsl.cli.main import app
from piper_dsl.library import load
from piper_dsl.simulate import Costs, simulate, timeline_json

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BAD = 'schedule "bad"\nranks 2\nmicrobatches 2\nrank 0: F0 B0 F1 B1 OPT\nrank 1: F1 F0 B0 B1 OPT\n'
REST = "…"
"""A line of its own in what is shown: more follows."""
_BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHOWN = re.compile(r"^\$ (piper-dsl .*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_UNSHOWN = re.compile(r"^(piper-dsl .*)$", re.MULTILINE)
_MEASURED = re.compile(r"\bin \d+\.\d s$", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """A command of a page, and what stands below it; None where nothing does."""

    page: str
    line: str
    shown: str | None = None

    def __str__(self) -> str:
        return f"{self.page}: {self.line}"

    @property
    def arguments(self) -> list[str]:
        return shlex.split(self.line)[1:]


def _commands() -> list[Command]:
    found = []
    for page in PAGES:
        for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
            text = block.replace("\\\n", " ")
            found += [Command(page.name, line, shown) for line, shown in _SHOWN.findall(text)]
            found += [Command(page.name, line) for line in _UNSHOWN.findall(text)]
    return found


COMMANDS = _commands()
SHOWN = [command for command in COMMANDS if command.shown]
UNSHOWN = [command for command in COMMANDS if not command.shown]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the pages suppose that there is."""
    monkeypatch.chdir(tmp_path)
    Path("bad.pipe").write_text(BAD, encoding="utf-8")
    measured = simulate(load("1f1b", p=2, m=4), Costs(F=0.01, B=0.02))
    Path("measured.json").write_text(timeline_json(measured), encoding="utf-8")
    return tmp_path


def test_commands_are_found() -> None:
    assert {command.page for command in SHOWN} >= {"README.md", "search.md"}
    assert {command.page for command in UNSHOWN} >= {"pictures.md", "running.md", "models.md", "search.md"}


@pytest.mark.parametrize("command", SHOWN, ids=str)
def test_what_is_shown_is_printed(command: Command) -> None:
    """All of it, in order, up to trailing spaces and seconds that were measured."""
    _require_solver(command)
    done = CliRunner().invoke(app, command.arguments)
    printed, shown = (_MEASURED.sub("in … s", text) for text in (done.stdout or done.stderr, command.shown))
    lines = [line.rstrip() for line in printed.splitlines()]
    expected = [line.rstrip() for line in shown.splitlines()]
    if expected[-1] == REST:
        expected.pop()
        assert len(lines) > len(expected)
        lines = lines[: len(expected)]
    assert expected == lines


@pytest.mark.parametrize("command", UNSHOWN, ids=str)
def test_other_commands_run(command: Command) -> None:
    """But for trainings, of models that the reader has: the command line takes them."""
    _require_solver(command)
    if command.arguments[0] == "run":
        typer.main.get_command(app).commands["run"].make_context("run", command.arguments[1:])
        return
    done = CliRunner().invoke(app, command.arguments)
    assert done.exit_code == 0, done.output
    assert all(f"wrote {path}\n" in done.stdout for path in _outputs(command.arguments))


def _require_solver(command: Command) -> None:
    if command.arguments[0] == "search" and not find_spec("ortools"):
        pytest.skip("the exact solver is not installed")


def _outputs(arguments: list[str]) -> list[str]:
    return [path for option, path in pairwise(arguments) if option == "-o"]
