"""What runs a pipeline and what carries its tensors between ranks, as a user names them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TARGETS", "TRANSPORTS", "Carrier"]

TARGETS = ("auto", "local", "ray-dag", "ray-program")


@dataclass(frozen=True)
class Carrier:
    """``targets`` know it; ``gpus``: it moves tensors of CPUs (0), of GPUs (1), or of both."""

    targets: tuple[str, ...]
    gpus: tuple[int, ...]


TRANSPORTS = {
    "auto": Carrier(TARGETS, (0, 1)),
    "accelerator": Carrier(("ray-dag",), (1,)),
    "shared-memory": Carrier(("ray-dag",), (0,)),
    "gloo": Carrier(("ray-dag",), (0,)),
    "direction": Carrier(("ray-program",), (1,)),
    "pair": Carrier(("ray-program",), (1,)),
}
