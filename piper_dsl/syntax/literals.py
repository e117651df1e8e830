"""Runs of literal operations (``0F0 2I1 0OPT``): the fast path of written-out files."""

from __future__ import annotations

import re

import numpy as np

from ..diagnostics import Span
from ..ir.operations import Kind
from .tree import Literals

_OPERATION = re.compile(r"(\s*&?\s*)([0-9]*)([A-Z_]+)([0-9]*)")
_LARGEST = 2**31 - 1
_KINDS = {kind.name: int(kind) for kind in Kind}


def read_literals(span: Span) -> tuple[Literals, tuple[Span, ...]]:
    """The operations of a run that the grammar's LITERALS terminal matched.

    Returns them with the places of numbers beyond 32 bits, which are read as 0.
    """
    # Whole columns rather than one match after another: a written-out file has a million operations.
    gaps, stages, kinds, microbatches = columns = tuple(zip(*_OPERATION.findall(span.text), strict=True))
    lengths = np.array([list(map(len, column)) for column in columns], dtype=np.int64)
    ends = np.cumsum(lengths.sum(axis=0)) + span.start
    starts = ends - lengths[1:].sum(axis=0)
    stage_numbers, oversized_stages = _numbers(stages, lengths[1])
    microbatch_numbers, oversized_microbatches = _numbers(microbatches, lengths[3])
    literals = Literals(
        span,
        kinds=np.array([_KINDS[kind] for kind in kinds], dtype=np.int8),
        stages=stage_numbers,
        microbatches=microbatch_numbers,
        joined=np.array(["&" in gap for gap in gaps]),
        starts=starts,
        ends=ends,
    )
    oversized = sorted({*oversized_stages, *oversized_microbatches})
    return literals, tuple(Span(span.source, int(starts[i]), int(ends[i])) for i in oversized)


def join_literals(first: Literals, second: Literals) -> Literals:
    """Two runs that follow each other as one."""
    span = Span(first.span.source, first.span.start, second.span.end)
    columns = ("kinds", "stages", "microbatches", "joined", "starts", "ends")
    return Literals(span, *(np.concatenate([getattr(run, name) for run in (first, second)]) for name in columns))


def _numbers(texts: tuple[str, ...], lengths: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """The numbers written (-1 where there is none) and the indices of those beyond 32 bits."""
    oversized = [i for i in np.flatnonzero(lengths > 9).tolist() if lengths[i] > 18 or int(texts[i]) > _LARGEST]
    if oversized:
        texts = tuple("0" if i in set(oversized) else text for i, text in enumerate(texts))
    return np.array([int(text) if text else -1 for text in texts], dtype=np.int32), oversized
