"""For tests of schedules: hypothesis strategies, and an interpreter of blocking queues as a second opinion.

>>> from hypothesis import given
>>> from piper_dsl.testing import WrittenSchedule, schedules
>>> @given(schedules(max_ranks=4))
... def test_something(written: WrittenSchedule) -> None:
...     assert len(written.schedule) >= 1

This package needs hypothesis (the ``test`` extra); nothing else of piper_dsl imports it.
"""

from .mutations import Change, Mutation, mutations
from .queues import (
    TRANSPORTS,
    Action,
    Compute,
    Group,
    Outcome,
    Recv,
    Send,
    Stuck,
    Transfer,
    WrongMessage,
    interpret,
)
from .strategies import schedules
from .texts import broken_text, source_text
from .written import WrittenSchedule

__all__ = [
    "TRANSPORTS",
    "Action",
    "Change",
    "Compute",
    "Group",
    "Mutation",
    "Outcome",
    "Recv",
    "Send",
    "Stuck",
    "Transfer",
    "WrittenSchedule",
    "WrongMessage",
    "broken_text",
    "interpret",
    "mutations",
    "schedules",
    "source_text",
]
