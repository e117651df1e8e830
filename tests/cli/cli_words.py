"""What the command line says, without its frames."""

from __future__ import annotations

from click import unstyle


def words(text: str) -> str:
    """The text without the frame that typer draws around its messages."""
    return " ".join(word for word in unstyle(text).split() if not set(word) <= set("│╭╮╰╯─|+-"))
