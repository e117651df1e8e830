"""How the tests of this room get timelines and read DOT."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from piper_dsl.diagnostics import Source
from piper_dsl.expand.expand import expand
from piper_dsl.simulate import Costs
from piper_dsl.simulate.engine import simulate
from piper_dsl.simulate.timeline import Timeline
from piper_dsl.syntax.parser import parse

SCHEDULES = Path(__file__).parents[2] / "schedules"
_NODE = re.compile(r'^\t("(?:[^"\\]|\\.)*"|\S+) \[(.*)\]$')
_ATTRIBUTE = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)')

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip

MakeTimeline = Callable[..., Timeline]


@dataclass(frozen=True)
class Node:
    """A node of a DOT source, in points; y grows upwards."""

    name: str
    attributes: dict[str, str]

    @property
    def width(self) -> float:
        return float(self.attributes["width"]) * 72

    @property
    def height(self) -> float:
        return float(self.attributes["height"]) * 72

    @property
    def left(self) -> float:
        return float(self.attributes["pos"].rstrip("!").split(",")[0]) - self.width / 2

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return float(self.attributes["pos"].rstrip("!").split(",")[1]) - self.height / 2

    @property
    def top(self) -> float:
        return self.bottom + self.height


def _make_timeline(name_or_text: str, costs: Costs | None = None, **parameters: int) -> Timeline:
    path = SCHEDULES / f"{name_or_text}.pipe" if "\n" not in name_or_text else None
    source = Source(path.name, path.read_text(encoding="utf-8")) if path else Source("test.pipe", name_or_text)
    return simulate(expand(parse(source), parameters), costs)


def _read_nodes(dot: str) -> dict[str, Node]:
    found = {}
    for line in dot.splitlines():
        match = _NODE.match(line)
        if match and "pos=" in line:
            attributes = {key: value.strip('"') for key, value in _ATTRIBUTE.findall(match[2])}
            name = match[1].strip('"')
            assert name not in found, f"two nodes are called {name}: Graphviz would draw one"
            found[name] = Node(name, attributes)
    return found


@pytest.fixture
def make_timeline() -> MakeTimeline:
    """``make_timeline("1f1b", p=4, m=8)``, or with the text of a schedule in place of the name."""
    return _make_timeline


@pytest.fixture
def read_nodes() -> Callable[[str], dict[str, Node]]:
    return _read_nodes


@pytest.fixture
def empty_timeline(make_timeline: MakeTimeline) -> Timeline:
    """Two ranks that run nothing."""
    one = make_timeline("gpipe", p=2, m=1)
    schedule = expand(parse(Source("empty.pipe", 'schedule "empty"\nranks 2\nmicrobatches 1\nrank r { }\n')))
    columns = {name: value[:0] for name, value in vars(one).items() if isinstance(value, np.ndarray)}
    return replace(one, schedule=schedule, **columns)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Closed at the end of the module: while it is open, an event loop runs in this thread."""
    playwright = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM:
        pytest.skip("there is no chromium")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield opened
        opened.close()
