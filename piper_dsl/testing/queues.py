"""An interpreter of blocking queues: does a program of computes, sends and receives complete?

It is an explicit state machine and shares no code with the checker, the simulator or the lowering, so
that it can serve as a second opinion on all three. It knows no durations and no stages; its input is,
for every rank, a list of actions in program order. What a transport queues and what a SEND waits for:

============== ================================================ ========================= ================
transport      queues of a rank, each in program order          a SEND ends               matched by
============== ================================================ ========================= ================
``buffered``   computes; transfers in none                      at once                   transfer
``capacity=k`` everything in one                                once < k are unreceived   order per
                                                                                          directed pair
``direction``  computes; transfers to b; transfers from b       with its RECV             the same
``pair``       computes; transfers with b                       with its RECV             the same
``rank``       computes; transfers                              with its RECV             the same
``blocking``   everything in one                                with its RECV             the same
============== ================================================ ========================= ================

An action is at its *turn* when it is the first of every queue that holds it; the first leaves its
queues when it ends. A compute at its turn ends once the computes and the arrivals that it needs have
ended. A transfer at its turn *starts* once its producer has ended; a SEND and a RECV that have both
started, each the other's rank as peer, end together (without rendezvous: the SEND ends by storing its
message, the RECV by taking one). The members of a group start together, when it is the group's turn
and all producers have ended; each ends with its own counterpart, the group with its last member.

**One run decides.** A step, once possible, stays possible until it is taken: a turn is never lost, what
has ended stays ended, a started SEND has one counterpart it can meet (the first RECV of its queue),
and a directed pair has one writer and one reader. So any two steps commute, every step ends
something, and by Newman's lemma all maximal runs end in the same state: the order in which steps are
tried cannot matter, nor can durations. (These are the determinate process networks of Kahn, "The
semantics of a simple language for parallel programming", IFIP 1974.)

>>> over = Transfer("F", 0, 1, 0)
>>> back = Transfer("B", 1, 0, 0)
>>> programs = [[Send(over, 1), Recv(back, 1)], [Send(back, 0), Recv(over, 0)]]
>>> interpret(programs, "buffered").completed
True
>>> print(*interpret(programs, "rank").stuck, sep="\\n")
rank 0, transfers: SEND F0 0→1 waits for its RECV
rank 1, transfers: SEND B0 1→0 waits for its RECV
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = [
    "TRANSPORTS",
    "Action",
    "Compute",
    "Group",
    "Outcome",
    "Recv",
    "Send",
    "Stuck",
    "Transfer",
    "WrongMessage",
    "interpret",
]

TRANSPORTS = ("buffered", "capacity", "direction", "pair", "rank", "blocking")
"""The names of the transports; ``capacity`` is written with its slots, ``capacity=2``."""

# --- programs --------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Transfer:
    """What is moved: an activation (``direction`` F) or a gradient (B) from one stage to another."""

    direction: str
    source: int
    target: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.direction}{self.microbatch} {self.source}→{self.target}"


@dataclass(frozen=True)
class Compute:
    """Work on a rank. It needs other computes of the same rank, by name, and transfers received there.

    A name that no compute of the rank has is a need that is never met. An overlapped slot is one
    compute with the needs of all its parts.
    """

    name: str
    needs: tuple[str, ...] = ()
    arrivals: tuple[Transfer, ...] = ()

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Send:
    """Sends to rank ``peer`` what the compute ``producer`` of this rank made (None: there from the start)."""

    transfer: Transfer
    peer: int
    producer: str | None = None

    def __str__(self) -> str:
        return f"SEND {self.transfer}"


@dataclass(frozen=True)
class Recv:
    """Receives from rank ``peer``."""

    transfer: Transfer
    peer: int

    def __str__(self) -> str:
        return f"RECV {self.transfer}"


@dataclass(frozen=True)
class Group:
    """Transfers of one rank that start together."""

    members: tuple[Send | Recv, ...]

    def __str__(self) -> str:
        return f"{{{' '.join(map(str, self.members))}}}"


Action = Compute | Send | Recv | Group

# --- outcomes --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stuck:
    """The first action of a queue that holds some still; ``queue`` is empty for one in no queue.

    ``started``: a transfer at its turn whose producer has ended; it waits for the other end alone.
    """

    rank: int
    queue: str
    action: Action
    started: bool

    def __str__(self) -> str:
        place = f"rank {self.rank}, {self.queue}" if self.queue else f"rank {self.rank}"
        if not self.started:
            return f"{place}: {self.action} has not started"
        other = {Send: "its RECV", Recv: "its SEND"}.get(type(self.action), "the other ends")
        return f"{place}: {self.action} waits for {other}"


@dataclass(frozen=True)
class WrongMessage:
    """A RECV of ``expected`` on rank ``receiver`` that order matched with the SEND of ``received``."""

    sender: int
    receiver: int
    expected: Transfer
    received: Transfer


@dataclass(frozen=True)
class Outcome:
    """What became of a program.

    ``stuck`` is empty exactly where everything ended: one entry for every queue that still holds
    something, by rank. ``wrong`` holds the messages handed to the wrong RECV, by receiver and sender, in
    the order received. ``unreceived`` are messages nobody took: (sender, receiver, transfer).
    """

    stuck: tuple[Stuck, ...]
    wrong: tuple[WrongMessage, ...]
    unreceived: tuple[tuple[int, int, Transfer], ...]

    @property
    def completed(self) -> bool:
        return not self.stuck

    @property
    def waiting(self) -> frozenset[tuple[int, str]]:
        """The transfers that started and wait for their other end, as (rank, text)."""
        return frozenset((stuck.rank, str(stuck.action)) for stuck in self.stuck if stuck.started)


# --- the machine -----------------------------------------------------------------------------


def interpret(programs: Sequence[Sequence[Action]], transport: str) -> Outcome:
    """Runs ``programs[rank]`` for every rank under a transport until nothing can end any more.

    Raises :class:`ValueError` for an unknown transport, a capacity below 1, a peer that is no other
    rank, an empty group, and a name that two computes of a rank share.
    """
    _validate(programs)
    machine = _Machine(programs, *_parse(transport))
    machine.run()
    return machine.outcome()


def _parse(transport: str) -> tuple[str, int]:
    """The name of a transport and its slots; 0 slots where it has none."""
    name, _, slots = transport.partition("=")
    known = name in TRANSPORTS and (slots.isdecimal() and int(slots) > 0 if name == "capacity" else transport == name)
    if not known:
        raise ValueError(f"unknown transport {transport!r}")
    return name, int(slots or 0)


def _members(action: Action) -> tuple[Send | Recv, ...]:
    if isinstance(action, Compute):
        return ()
    return action.members if isinstance(action, Group) else (action,)


def _validate(programs: Sequence[Sequence[Action]]) -> None:
    for rank, program in enumerate(programs):
        names = [action.name for action in program if isinstance(action, Compute)]
        if len(set(names)) < len(names):
            raise ValueError(f"two computes of rank {rank} have the same name")
        for action in program:
            if isinstance(action, Group) and not action.members:
                raise ValueError(f"an empty group on rank {rank}")
            for member in _members(action):
                if member.peer == rank or not 0 <= member.peer < len(programs):
                    raise ValueError(f"{member} on rank {rank} has no other rank as peer: {member.peer}")


@dataclass(eq=False)
class _Entry:
    """An action of a rank, the queues that hold it, and its members that have not ended."""

    rank: int
    action: Action
    queues: tuple[str, ...]
    open: list[Send | Recv]
    ended: bool = False


class _Machine:
    def __init__(self, programs: Sequence[Sequence[Action]], transport: str, slots: int) -> None:
        self._transport = transport
        self._slots = slots
        self._entries: list[list[_Entry]] = []
        self._queues: list[dict[str, list[_Entry]]] = []
        for rank, program in enumerate(programs):
            entries = [_Entry(rank, action, self._queues_of(action), [*_members(action)]) for action in program]
            queues: dict[str, list[_Entry]] = {}
            for entry in entries:
                for queue in entry.queues:
                    queues.setdefault(queue, []).append(entry)
            self._entries.append(entries)
            self._queues.append(queues)
        self._computed: list[set[str]] = [set() for _ in programs]
        self._arrived: list[set[Transfer]] = [set() for _ in programs]
        self._stored: dict[tuple[int, int], list[Transfer]] = {}
        self._wrong: list[WrongMessage] = []

    def _queues_of(self, action: Action) -> tuple[str, ...]:
        """The queues of its rank that an action stands in: the column of the table above."""
        if self._transport in ("blocking", "capacity"):
            return ("program",)
        if isinstance(action, Compute):
            return ("compute",)
        if self._transport == "buffered":
            return ()
        if self._transport == "rank":
            return ("transfers",)
        members = _members(action)
        if self._transport == "pair":
            return tuple(sorted({f"with {m.peer}" for m in members}))
        return tuple(sorted({f"{'to' if isinstance(m, Send) else 'from'} {m.peer}" for m in members}))

    def run(self) -> None:
        """Takes steps until none is possible."""
        while sum(self._step(entry) for entry in self._unfinished()):
            pass

    def _unfinished(self) -> Iterator[_Entry]:
        return (entry for entries in self._entries for entry in entries if not entry.ended)

    def _step(self, entry: _Entry) -> bool:
        """Ends an action, or some members of a group, where that is possible; says whether it was."""
        if entry.ended or not self._at_turn(entry):
            return False
        if isinstance(entry.action, Compute):
            return self._compute(entry, entry.action)
        if not self._started(entry):
            return False
        return sum(self._transfer(entry, member) for member in [*entry.open]) > 0

    def _at_turn(self, entry: _Entry) -> bool:
        return all(self._queues[entry.rank][queue][0] is entry for queue in entry.queues)

    def _started(self, entry: _Entry) -> bool:
        """Whether a transfer or group that has not ended has begun: its turn, its producers ended."""
        producers = {m.producer for m in _members(entry.action) if isinstance(m, Send) and m.producer is not None}
        is_transfer = not isinstance(entry.action, Compute)
        return is_transfer and not entry.ended and producers <= self._computed[entry.rank] and self._at_turn(entry)

    def _compute(self, entry: _Entry, action: Compute) -> bool:
        ready = self._computed[entry.rank].issuperset(action.needs)
        if not ready or not self._arrived[entry.rank].issuperset(action.arrivals):
            return False
        self._computed[entry.rank].add(action.name)
        self._leave(entry)
        return True

    def _leave(self, entry: _Entry) -> None:
        entry.ended = True
        for queue in entry.queues:
            self._queues[entry.rank][queue].pop(0)

    # --- transfers: one of the three ways in which a started member ends -----------------------

    def _transfer(self, entry: _Entry, member: Send | Recv) -> bool:
        if self._transport == "buffered":
            return self._by_key(entry, member)
        if self._transport == "capacity":
            return self._through_slots(entry, member)
        return isinstance(member, Send) and self._meet(entry, member)

    def _end(self, entry: _Entry, member: Send | Recv, received: Transfer | None = None) -> None:
        entry.open.remove(member)
        if isinstance(member, Recv):
            assert received is not None
            self._arrived[entry.rank].add(member.transfer)
            if received != member.transfer:
                self._wrong.append(WrongMessage(member.peer, entry.rank, member.transfer, received))
        if not entry.open:
            self._leave(entry)

    def _meet(self, entry: _Entry, send: Send) -> bool:
        """Rendezvous with the first started RECV of the other rank."""
        for other in self._entries[send.peer]:
            if self._started(other):
                for member in other.open:
                    if isinstance(member, Recv) and member.peer == entry.rank:
                        self._end(other, member, send.transfer)
                        self._end(entry, send)
                        return True
        return False

    def _through_slots(self, entry: _Entry, member: Send | Recv) -> bool:
        """A slot of the directed pair, taken by the SEND and given back by the RECV."""
        if isinstance(member, Send):
            slots = self._stored.setdefault((entry.rank, member.peer), [])
            if len(slots) >= self._slots:
                return False
            slots.append(member.transfer)
            self._end(entry, member)
            return True
        slots = self._stored.get((member.peer, entry.rank), [])
        if not slots:
            return False
        self._end(entry, member, slots.pop(0))
        return True

    def _by_key(self, entry: _Entry, member: Send | Recv) -> bool:
        """A store that holds any number of messages and hands out the one that is asked for."""
        if isinstance(member, Send):
            self._stored.setdefault((entry.rank, member.peer), []).append(member.transfer)
            self._end(entry, member)
            return True
        store = self._stored.get((member.peer, entry.rank), [])
        if member.transfer not in store:
            return False
        store.remove(member.transfer)
        self._end(entry, member, member.transfer)
        return True

    # --- the result ----------------------------------------------------------------------------

    def outcome(self) -> Outcome:
        stuck = []
        for rank, queues in enumerate(self._queues):
            heads = [(queue, entries[0]) for queue, entries in sorted(queues.items()) if entries]
            heads += [("", entry) for entry in self._entries[rank] if not entry.queues and not entry.ended]
            stuck += [Stuck(rank, queue, entry.action, self._started(entry)) for queue, entry in heads]
        left = [(*pair, transfer) for pair, stored in sorted(self._stored.items()) for transfer in stored]
        wrong = sorted(self._wrong, key=lambda message: (message.receiver, message.sender))
        return Outcome(tuple(stuck), tuple(wrong), tuple(left))
