"""Pages taken apart: title, paragraphs, and the blocks of their two sections."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import piper_dsl.pages

FOLDER = Path(piper_dsl.pages.__file__).parent
SECTIONS = ("Fails", "Repaired")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Page:
    """``blocks`` has, for both sections, pairs of a language and a text."""

    title: str
    paragraphs: list[str]
    headings: tuple[str, ...]
    blocks: dict[str, list[tuple[str, str]]]

    def example(self, section: str, language: str) -> str | None:
        """The first block of a language in a section."""
        return next((text for name, text in self.blocks[section] if name == language), None)


def read_page(code: str) -> Page:
    """The page of a code."""
    prose, *sections = re.split(r"^## (.*)\n", (FOLDER / f"{code}.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    title, *paragraphs = prose.strip().split("\n\n")
    blocks = {heading: _BLOCK.findall(text) for heading, text in zip(sections[::2], sections[1::2], strict=True)}
    return Page(title, paragraphs, tuple(sections[::2]), blocks)
