"""What every rank is doing, asked beside the step that may be running."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

__all__ = ["roll_call"]

ANSWER = 2.0
"""Seconds in which ranks say what they do; those that are busy in native code do not get to it."""


def roll_call(actors: Sequence[Any]) -> list[str | None]:
    """What each rank is doing, in words; None for one that is dead."""
    asked = [actor.where.remote() for actor in actors]
    answered = set(ray.wait(asked, num_returns=len(asked), timeout=ANSWER)[0]) if asked else set()
    return [_said(answer) if answer in answered else "does not answer" for answer in asked]


def _said(answer: Any) -> str | None:
    try:
        return str(ray.get(answer))
    except RayActorError:
        return None
    except RayError as error:
        return f"does not answer: {type(error).__name__}"
