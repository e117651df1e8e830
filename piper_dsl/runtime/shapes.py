"""How large messages get: a dry run of the stages on meta tensors, which hold shapes and no data."""

from __future__ import annotations

from collections.abc import Sequence

from .dry_run import dry_run, on_meta
from .spec import Batch, RankSpec
from .stage import as_tuple

__all__ = ["batch_bytes", "largest_message"]


def batch_bytes(batches: Sequence[Batch]) -> int:
    """The bytes of one step's data, over all ranks."""
    return sum(x.nbytes for b in batches for part in (b.inputs, b.targets) for xs in part.values() for x in xs)


def largest_message(specs: Sequence[RankSpec], batches: Sequence[Batch]) -> int | None:
    """The bytes of the largest message between stages; None where a stage cannot run on meta tensors.

    That only leaves buffers to be sized as they are used: a stage that is at fault says so when it runs.
    """
    try:
        training = batches[0].training
        outputs = dry_run(specs, batches, lambda _, module, given: as_tuple(on_meta(module, given, training)))
    except Exception:
        return None
    successors = specs[0].graph.successors
    return max((sum(x.nbytes for x in xs) for stage, xs in outputs.items() if successors[stage]), default=0)
