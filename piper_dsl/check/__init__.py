"""Findings about a schedule, decided before anything runs. One file a check."""

from __future__ import annotations

from collections.abc import Sequence

from ..diagnostics import Diagnostic, in_source_order
from ..ir.memory import ACTIVATIONS, Memory
from ..ir.schedule import Schedule
from ..plan.transport import Transport
from .complete import check_complete
from .memory import check_memory
from .order import check_order
from .transfer import check_collectives, check_transfers

__all__ = ["check"]


def check(
    schedule: Schedule,
    transport: str = "buffered",
    memory_limit: float | Sequence[float] | None = None,
    memory: Memory = ACTIVATIONS,
) -> tuple[Diagnostic, ...]:
    """Everything wrong with a schedule, in source order; empty if it can run on the transport.

    It is complete (every stage runs every microbatch forward once and, unless the schedule only
    evaluates, backward once, on the rank the placement says), its order has no cycle, and the transfers
    that the file writes, if any, complete on the transport (see :mod:`piper_dsl.plan.transport`). With a
    ``memory_limit``, for all ranks or one for each, no rank exceeds it; it counts activations, or what
    ``memory`` says.

    Raises ValueError for a transport there is none of, and for limits or sizes that are not one for each.
    """
    chosen = Transport.parse(transport)
    held = [] if memory_limit is None else check_memory(schedule, memory_limit, memory)
    if held:
        return in_source_order([*_structure(schedule), *held])
    if transport not in schedule.findings:
        # Transfers between operations that are missing or run in a circle cannot be judged.
        schedule.findings[transport] = in_source_order(_structure(schedule) or check_transfers(schedule, chosen))
    return schedule.findings[transport]


def _structure(schedule: Schedule) -> list[Diagnostic]:
    """What is wrong whatever the transport."""
    return [*check_complete(schedule), *check_order(schedule), *check_collectives(schedule)]
