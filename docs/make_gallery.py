"""Writes the gallery: every schedule of the library at p=4 m=8, its picture, bubble and memory.

``python docs/make_gallery.py`` writes gallery.md and gallery/ beside itself, or into another folder that is named.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import piper_dsl as piper
from piper_dsl.cli.list import summary
from piper_dsl.draw import View
from piper_dsl.library import read_source

SIZES = {"p": 4, "m": 8}
HEAD = """# Gallery

Every schedule of the library at p=4 m=8, under F = 1, B = 2 and I = W = 1 for the part of the model that a rank holds:
where a rank has two stages, each is half of it. `bubble` is the idle share of all time, `in span` within the longest
span of a rank, `peak` the most activations a rank holds, in activations of one microbatch of a rank's part. `make
gallery` writes this page.

| schedule | makespan | bubble | in span | peak |
|---|---|---|---|---|
"""


def simulated(name: str) -> piper.Timeline:
    """The timeline of a schedule whose stages are parts of one model."""
    schedule = piper.load(name, SIZES)
    return piper.simulate(schedule, piper.Costs().scaled(schedule, schedule.ranks / schedule.stages))


def row(name: str, timeline: piper.Timeline) -> str:
    """A line of the table."""
    bubble, schedule = timeline.bubble, timeline.schedule
    peak = max(timeline.peak_memory) * schedule.ranks / schedule.stages
    figures = (f"{timeline.makespan:g}", f"{bubble.idle:.1%}", f"{bubble.span:.1%}", f"{peak:g}")
    return f"| [{name}](#{name}) | {' | '.join(figures)} |\n"


def section(name: str) -> str:
    """What a schedule is, and its picture."""
    said = summary(read_source(name).text)
    return f"\n## {name}\n\n{said}.\n\n![{name}](gallery/{name}.svg)\n"


def pages(timelines: dict[str, piper.Timeline]) -> Iterator[str]:
    """The parts of the page."""
    yield HEAD
    yield from (row(name, timeline) for name, timeline in timelines.items())
    yield from map(section, timelines)


def main(folder: Path) -> None:
    """Writes the page and its pictures."""
    timelines = {name: simulated(name) for name in piper.library_names()}
    for name, timeline in timelines.items():
        piper.draw(timeline, folder / "gallery" / f"{name}.svg", View(memory=True))
    (folder / "gallery.md").write_text("".join(pages(timelines)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
