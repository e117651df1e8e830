"""`piper-dsl explain`: a page, the list of all, and codes there are none of."""

from __future__ import annotations

import pytest
from code_pages import FOLDER
from typer.testing import CliRunner

from piper_dsl.cli.main import app
from piper_dsl.codes import CODES

WIDE = {"COLUMNS": "160", "TERMINAL_WIDTH": "160"}


@pytest.mark.parametrize("code", CODES)
def test_it_prints_the_page_as_it_is(code: str) -> None:
    done = CliRunner().invoke(app, ["explain", code])
    assert (done.exit_code, done.stdout) == (0, (FOLDER / f"{code}.md").read_text(encoding="utf-8"))


def test_small_letters_will_do() -> None:
    done = CliRunner().invoke(app, ["explain", "p301"])
    assert done.stdout == (FOLDER / "P301.md").read_text(encoding="utf-8")


def test_on_a_terminal_the_page_is_set() -> None:
    done = CliRunner().invoke(app, ["explain", "P301"], env={"FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": "160"})
    assert done.exit_code == 0
    assert "P301: ranks wait for each other in a circle" in done.stdout
    assert "let warmup = min(m, p - 1 - r)" in done.stdout
    assert "```" not in done.stdout
    assert "## " not in done.stdout


def test_without_a_code_it_lists_all() -> None:
    done = CliRunner().invoke(app, ["explain"])
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines()[1:]]
    assert done.exit_code == 0
    assert {code: line.rstrip() for code, line in lines} == dict(CODES)


@pytest.mark.parametrize(
    ("code", "help_"), [("P3O1", "did you mean `P301`?"), ("301", "did you mean `P301`?"), ("xyz", "lists all")]
)
def test_an_unknown_code_is_a_usage_error(code: str, help_: str) -> None:
    done = CliRunner().invoke(app, ["explain", code], env=WIDE)
    assert done.exit_code == 2
    assert f"there is no code `{code}`" in done.output
    assert help_ in done.output


def test_the_help_has_an_example() -> None:
    done = CliRunner().invoke(app, ["explain", "--help"], env=WIDE)
    assert done.exit_code == 0
    assert "Example: piper-dsl explain P301" in done.output
