"""The pages of `piper-dsl explain`: one a code, and what they show is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from code_pages import FOLDER, SECTIONS, read_page
from code_places import EXPECTED
from typer.testing import CliRunner

import piper_dsl
from piper_dsl.cli.main import app
from piper_dsl.codes import CODES

HERE = Path(__file__).parent
NOT_RUN = {
    "P103": "needs a file of 400 MB",
    "P711": "needs Ray and a slow step",
    "P713": "needs a rank that dies",
    "P714": "needs a Ray of its own",
    "P715": "needs an installation without torch",
}


def test_there_is_one_page_a_code() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.md")) == sorted(CODES)


def test_the_registry_has_every_code_of_the_package_and_no_other() -> None:
    package = Path(piper_dsl.__file__).parent
    sources = [path.read_text(encoding="utf-8") for path in package.rglob("*.py") if path.name != "codes.py"]
    assert {code for text in sources for code in re.findall(r'"(P[0-9]{3})"', text)} == set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_a_page_has_its_parts(code: str) -> None:
    page = read_page(code)
    assert page.title == f"# {code}: {CODES[code]}"
    assert 1 <= len(page.paragraphs) <= 3
    assert page.headings == SECTIONS
    assert all(page.blocks.values())


@pytest.mark.parametrize("code", CODES)
def test_the_examples_are_the_files(code: str) -> None:
    page = read_page(code)
    for section, kind in zip(SECTIONS, ("bad", "good"), strict=True):
        path = HERE / f"{code}.{kind}.pipe"
        expected = path.read_text(encoding="utf-8") if code in EXPECTED else None
        assert page.example(section, "pipe") == expected


# --- what the pages show, carried out -------------------------------------------------------------


def _runnable(language: str) -> list[str]:
    return [code for code in CODES if code not in NOT_RUN and read_page(code).example(SECTIONS[0], language)]


def _carry_out(block: str) -> None:
    """Runs the commands of a console block here; what stands below each has to be in its output, in order.

    `cat FILE` shows what is in a file, which is made so.
    """
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
        program, *arguments = shlex.split(command)
        if program == "cat":
            Path(arguments[0]).write_text(shown, encoding="utf-8")
            continue
        assert program == "piper-dsl"
        done = CliRunner().invoke(app, arguments)
        lines = iter(done.output.splitlines())
        assert all(any(line == found.rstrip() for found in lines) for line in shown.splitlines()), done.output
        assert done.exit_code == ("error[" in done.output)


@pytest.mark.parametrize("code", _runnable("console"))
def test_the_commands_give_what_is_shown(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = read_page(code)
    for section, kind in zip(SECTIONS, ("bad", "good"), strict=True):
        if text := page.example(section, "pipe"):
            Path(f"{code}.{kind}.pipe").write_text(text, encoding="utf-8")
        block = page.example(section, "console")
        assert block
        _carry_out(block)


@pytest.mark.parametrize("code", _runnable("python"))
def test_the_scripts_raise_their_code_until_repaired(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    for section, fails in zip(SECTIONS, (True, False), strict=True):
        block = read_page(code).example(section, "python")
        assert block
        try:
            exec(compile(block, f"{code}.md", "exec"), {})
            found = set(re.findall(r"error\[(P[0-9]{3})\]", capsys.readouterr().out))
        except piper_dsl.PipeError as error:
            found = {finding.code for finding in error.diagnostics}
        assert (code in found) == fails
