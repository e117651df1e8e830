"""Measured costs as a profile that `piper-dsl simulate --costs` reads."""

from __future__ import annotations

from ..ir.costs import Costs

__all__ = ["profile_text"]


def profile_text(costs: Costs, comment: str) -> str:
    """The costs as TOML, one list a kind with an entry a stage; ``comment`` says where they come from."""
    lines = [f"# {comment}", f"latency = {costs.latency!r}", f"overhead = {costs.overhead!r}", "", "[costs]"]
    for kinds, cost in costs.kinds.items():
        name = "&".join(kind.name for kind in kinds)
        numbers = cost if isinstance(cost, float) else list(cost)
        lines.append(f"{name if len(kinds) == 1 else repr(name)} = {numbers!r}")
    return "\n".join(lines) + "\n"
