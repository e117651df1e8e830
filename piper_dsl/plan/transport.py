"""The transports: in which queues transfers wait, and for whom."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TRANSPORTS", "Transport"]

TRANSPORTS = ("buffered", "capacity=k", "direction", "pair", "rank", "blocking", "ray-accelerator")


@dataclass(frozen=True)
class Transport:
    """How messages go between ranks.

    ``buffered``: a SEND never waits; messages are told apart by their key. ``capacity``: a SEND waits
    while ``slots`` messages of its directed pair are unreceived. The others are rendezvous, a SEND ends
    with its RECV: in one in-order queue per directed pair (``direction``), per pair of ranks (``pair``),
    per rank (``rank``), or in the order of the whole program (``blocking``, and ``ray-accelerator``, the
    edges between actors of Ray's compiled graphs, where a message holds the only stream of both).
    """

    name: str
    slots: int = 0

    @classmethod
    def parse(cls, text: str) -> Transport:
        """A transport by its name, as in ``pair`` or ``capacity=2``. Raises ValueError for anything else."""
        name, _, slots = text.partition("=")
        if name == "capacity" and slots.isdecimal() and int(slots) > 0:
            return cls(name, int(slots))
        if text not in TRANSPORTS or name == "capacity":
            raise ValueError(f"there is no transport `{text}`; there are {', '.join(TRANSPORTS)} (k at least 1)")
        return cls(name)

    def __str__(self) -> str:
        return f"{self.name}={self.slots}" if self.slots else self.name

    @property
    def rendezvous(self) -> bool:
        """Whether a SEND ends only with its RECV."""
        return self.name not in ("buffered", "capacity")

    @property
    def by_order(self) -> bool:
        """Whether messages of a directed pair are matched by their order, not by a key."""
        return self.name != "buffered"

    @property
    def program_order(self) -> bool:
        """Whether transfers wait in the order of the whole program, computing included."""
        return self.name in ("capacity", "blocking", "ray-accelerator")

    def queue(self, rank: int, peer: int, sends: bool) -> tuple[int, ...]:
        """The queue at ``rank`` that a transfer with ``peer`` waits in; only for rendezvous transports."""
        if self.name == "direction":
            return (rank, peer, int(sends))
        return (rank, peer) if self.name == "pair" else (rank,)
