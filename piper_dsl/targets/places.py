"""Places for ranks: a placement group, held as a whole before anything starts, or refused with what is missing."""

from __future__ import annotations

from typing import Any

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ..diagnostics import Diagnostic, PipeError
from ..runtime.resources import Resources

__all__ = ["Places"]


class Places:
    """A place for each of ``ranks``, with ``resources``; ranks of one node follow one another.

    Waits for what others are about to free for as many seconds as ``patience`` says, where the cluster has enough.
    Raises :class:`PipeError` (P714) with what is missing.
    """

    def __init__(self, ranks: int, resources: Resources, patience: int) -> None:
        self._each = {"CPU": resources.num_cpus, "GPU": resources.num_gpus or 0}
        if short := _short(ranks, self._each, ray.cluster_resources()):
            raise PipeError(_missing(ranks, self._each, short))
        bundle = {what: each for what, each in self._each.items() if each}
        self._group = placement_group([bundle] * ranks, strategy=resources.strategy.replace("-", "_").upper())
        try:
            self._bundles = self._found(ranks, resources, patience)
        except BaseException:
            # Who stops waiting, by Ctrl-C too, does not keep others from the places.
            self.release()
            raise

    def _found(self, ranks: int, resources: Resources, patience: int) -> list[int]:
        """The bundle of every rank."""
        if not self._group.wait(patience):
            short = _short(ranks, self._each, ray.available_resources())
            raise PipeError(_missing(ranks, self._each, short) if short else _scattered(ranks, self._each, resources))
        nodes = placement_group_table(self._group)["bundles_to_node_id"]
        return sorted(range(ranks), key=lambda bundle: (nodes[bundle], bundle))

    def options(self, rank: int) -> dict[str, Any]:
        """Ray's options for the actor of a rank."""
        strategy = PlacementGroupSchedulingStrategy(self._group, self._bundles[rank])
        return {"num_cpus": self._each["CPU"], "num_gpus": self._each["GPU"], "scheduling_strategy": strategy}

    def release(self) -> None:
        """Gives all places back; actors that are still there are killed."""
        remove_placement_group(self._group)


def _short(ranks: int, each: dict[str, float], there: dict[str, float]) -> list[str]:
    """Of which resources there is too little for all ranks."""
    return [what for what, number in each.items() if there.get(what, 0) < ranks * number]


def _missing(ranks: int, each: dict[str, float], short: list[str]) -> Diagnostic:
    total, free = ray.cluster_resources(), ray.available_resources()
    parts = [
        f"{ranks} ranks need {ranks * each[what]:g} {what}s, {'one' if each[what] == 1 else f'{each[what]:g}'} each; "
        f"Ray has {free.get(what, 0):g} free of {total.get(what, 0):g}"
        for what in short
    ]
    more = ", or pass `num_gpus=0` to train on CPUs" if "GPU" in short else ""
    return Diagnostic("P714", ", and ".join(parts), None, f"close other pipelines, or start Ray with more{more}")


def _scattered(ranks: int, each: dict[str, float], resources: Resources) -> Diagnostic:
    """There is enough in all, but not where a rank, or the strategy, needs it."""
    needs = _in_words(each, each)
    message = f"{ranks} ranks with {needs} each find no place on the nodes (strategy `{resources.strategy}`)"
    nodes = tuple(
        f"node {node['NodeManagerAddress']} has {_in_words(node['Resources'], each)}"
        for node in ray.nodes()
        if node["Alive"]
    )
    help_ = "ask for less per rank, take strategy `pack` or `spread`, or start Ray on more nodes"
    return Diagnostic("P714", message, None, help_, notes=nodes)


def _in_words(there: dict[str, float], each: dict[str, float]) -> str:
    """How much there is of what is asked for: ``2 CPUs and 1 GPU``."""
    found = [(what, there.get(what, 0)) for what, number in each.items() if number]
    return " and ".join(f"{number:g} {what}{'' if number == 1 else 's'}" for what, number in found)
