"""What a rank is given of a Ray cluster, and how ranks are laid over its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..diagnostics import Diagnostic

__all__ = ["STRATEGIES", "Resources", "ungiven"]

STRATEGIES = ("pack", "spread", "strict-pack", "strict-spread")

_MOVES = {"auto": (0, 1), "accelerator": (1,), "shared-memory": (0,), "gloo": (0,), "direction": (1,), "pair": (1,)}
"""By transport: whether it moves tensors of CPUs (0), of GPUs (1), or of both."""


@dataclass(frozen=True)
class Resources:
    """Of each rank. ``num_gpus``: None lets the target take one where the cluster has one for every rank.

    ``strategy``: ``pack`` fills node after node, ``spread`` takes all nodes in turn, both as far as they can;
    ``strict-pack`` takes one node and ``strict-spread`` a node for each rank, or nothing.
    """

    num_cpus: float = 1
    num_gpus: int | None = None
    strategy: str = "pack"


def ungiven(resources: Resources, transport: str) -> Iterator[Diagnostic]:
    """What no cluster could give to a rank."""
    if not 0 < resources.num_cpus < float("inf"):
        yield Diagnostic("P702", f"`num_cpus` is {resources.num_cpus:g}", None, "give a positive number")
    gpus = resources.num_gpus
    if gpus is not None and (gpus < 0 or gpus != int(gpus)):
        help_ = "give a whole number, 0 for none: ranks that send to each other cannot share a GPU"
        yield Diagnostic("P702", f"`num_gpus` is {gpus:g}", None, help_)
    elif gpus is not None and min(gpus, 1) not in _MOVES.get(transport, (0, 1)):
        message = f"transport `{transport}` does not move tensors of ranks with {gpus:g} GPUs"
        yield Diagnostic("P702", message, None, "leave out `num_gpus`, or take transport `auto`")
    if resources.strategy not in STRATEGIES:
        help_ = f"one of {', '.join(STRATEGIES)}"
        yield Diagnostic("P702", f"there is no strategy `{resources.strategy}`", None, help_)
