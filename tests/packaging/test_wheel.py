"""The wheel carries grammar and schedules, and works where the repository is not."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def pip(*arguments: str, cwd: Path) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, cwd=cwd, check=True, timeout=300)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Built from a copy: a build leaves files behind.
    source = tmp_path_factory.mktemp("source")
    names = ["pyproject.toml", "setup.cfg", "README.md", "LICENSE", "piper_dsl", "grammar", "schedules"]
    subprocess.run(["cp", "-r", *(str(ROOT / name) for name in names), str(source)], check=True)
    target = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(target), ".", cwd=source)
    (built,) = target.glob("*.whl")
    return built


def test_it_contains_the_grammar_and_every_schedule(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "piper_dsl/grammar/pipe.lark" in names
    assert {f"piper_dsl/schedules/{path.name}" for path in (ROOT / "schedules").glob("*.pipe")} <= names
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "piper_dsl").rglob("*.py")}
    assert modules <= names
    folder = ROOT / "piper_dsl" / "draw" / "viewer"
    viewer = {str(path.relative_to(ROOT)) for path in folder.iterdir() if path.is_file()}
    assert viewer <= names


def test_it_works_installed_elsewhere(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    pip("install", "--no-deps", "--target", str(site), str(wheel), cwd=tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(site)}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = "import piper_dsl, piper_dsl.grammar, piper_dsl.schedules as s; print(piper_dsl.__file__, *s.__path__)"
    assert all(path.startswith(str(site)) for path in run("-c", where).split())
    report = json.loads(run("-m", "piper_dsl", "check", "1f1b", "-p", "p=2", "-p", "m=4", "--format", "json"))
    assert report["ok"] is True
    assert report["schedule"]["operations"] == 18
    assert "function draw()" in run("-m", "piper_dsl", "visualize", "1f1b", "-o", "-.html")
