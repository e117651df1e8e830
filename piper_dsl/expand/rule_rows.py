"""What a rule arranged, as rows: for `block` and `auto`, which leave the order to the compiler."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np

from ..diagnostics import Span
from ..ir.operations import Kind
from ..ir.placement import Placement
from .body import BodyExpander
from .frame import Contexts
from .rows import Rows

__all__ = ["arranged_rows"]


def arranged_rows(
    arranged: Sequence[Iterable[tuple[Kind, int, int]]],
    spans: Sequence[tuple[Kind, Span]],
    placement: Placement,
    sites: BodyExpander,
    contexts: Contexts,
) -> Rows:
    """The (kind, stage, microbatch) of every rank, then what ends it, as rows.

    ``spans`` has the lines of the rule; kinds that are in no row end every rank, in the order of their
    lines, for every stage of it. Operations know their line, their stage and their microbatch.
    """
    rows = [list(row) for row in arranged]
    used = {kind for row in rows for kind, _, _ in row}
    ends = [kind for kind, _ in spans if kind not in used]
    operations = [
        (rank, int(kind), stage, microbatch)
        for rank, row in enumerate(rows)
        for kind, stage, microbatch in [*row, *((k, s, -1) for k, s in product(ends, placement.owned[rank]))]
    ]
    rank, kind, stage, microbatch = np.array(operations, dtype=np.int64).reshape(-1, 4).T
    site = np.zeros(len(Kind), dtype=np.int64)
    for line_kind, span in reversed(spans):
        site[line_kind] = sites.site(span)
    context = contexts.add("i", contexts.add("s", np.full(len(rank), -1), stage), microbatch)
    return Rows(rank, kind, stage, microbatch, np.zeros(len(rank), dtype=bool), site[kind], context)
