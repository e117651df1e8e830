"""The one error of this room."""

from __future__ import annotations

__all__ = ["DrawError"]


class DrawError(Exception):
    """A picture cannot be made. ``message`` says why and ``help`` what to do, one line each."""

    def __init__(self, message: str, help: str) -> None:
        self.message = message
        self.help = help
        super().__init__(f"{message}; {help}")
