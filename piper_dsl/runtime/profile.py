"""Measured costs as a profile, TOML or JSON, that `piper-dsl simulate --costs` reads."""

from __future__ import annotations

import json

from ..ir.costs import Costs
from ..ir.profile import costs_document

__all__ = ["PROFILE_SUFFIXES", "profile_text"]

PROFILE_SUFFIXES = (".toml", ".json")


def profile_text(costs: Costs, path: str, comment: str) -> str:
    """The costs as the suffix of a path says, one list a kind with an entry a stage.

    ``comment`` says in TOML where they come from; JSON has no comments.
    """
    if path.endswith(".json"):
        return json.dumps(costs_document(costs), indent=2) + "\n"
    lines = [f"# {comment}", f"latency = {costs.latency!r}", f"overhead = {costs.overhead!r}", "", "[costs]"]
    for kinds, cost in costs.kinds.items():
        name = "&".join(kind.name for kind in kinds)
        numbers = cost if isinstance(cost, float) else list(cost)
        lines.append(f"{name if len(kinds) == 1 else repr(name)} = {numbers!r}")
    return "\n".join(lines) + "\n"
