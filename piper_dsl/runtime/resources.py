"""What a rank is given of a Ray cluster, and how ranks are laid over its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..diagnostics import Diagnostic
from .transports import TRANSPORTS

__all__ = ["STRATEGIES", "Resources", "ungiven"]

STRATEGIES = ("pack", "spread", "strict-pack", "strict-spread")


@dataclass(frozen=True)
class Resources:
    """Of each rank. ``num_gpus``: None lets the target take one where the cluster has one for every rank.

    ``strategy``: ``pack`` fills node after node, ``spread`` takes all nodes in turn, both as far as they can;
    ``strict-pack`` takes one node and ``strict-spread`` a node for each rank, or nothing.
    """

    num_cpus: float = 1
    num_gpus: int | None = None
    strategy: str = "pack"

    def carried_by(self, transport: str) -> Resources:
        """The same, with as many GPUs as a transport wants that moves tensors of one kind, where nobody says more."""
        kinds = TRANSPORTS[transport].gpus
        return replace(self, num_gpus=kinds[0]) if self.num_gpus is None and len(kinds) == 1 else self


def ungiven(resources: Resources, transport: str) -> Iterator[Diagnostic]:
    """What no cluster could give to a rank."""
    if not 0 < resources.num_cpus < float("inf"):
        yield Diagnostic("P702", f"`num_cpus` is {resources.num_cpus:g}", None, "give a positive number")
    gpus = resources.num_gpus
    if gpus is not None and (gpus < 0 or gpus != int(gpus)):
        help_ = "give a whole number, 0 for none: ranks that send to each other cannot share a GPU"
        yield Diagnostic("P702", f"`num_gpus` is {gpus:g}", None, help_)
    elif gpus is not None and transport in TRANSPORTS and min(gpus, 1) not in TRANSPORTS[transport].gpus:
        message = f"transport `{transport}` does not move tensors of ranks with {gpus:g} GPUs"
        yield Diagnostic("P702", message, None, "leave out `num_gpus`, or take transport `auto`")
    if resources.strategy not in STRATEGIES:
        help_ = f"one of {', '.join(STRATEGIES)}"
        yield Diagnostic("P702", f"there is no strategy `{resources.strategy}`", None, help_)
