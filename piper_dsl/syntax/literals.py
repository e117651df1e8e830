"""Runs of literal operations (``0F0 2I1 0OPT``): the fast path of written-out files."""

from __future__ import annotations

import re

import numpy as np

from ..diagnostics import Span
from ..ir.operations import Kind
from .tree import Literals

_OPERATION = re.compile(r"(&?)\s*([0-9]*)([A-Z_]+)([0-9]*)")
_LARGEST = 2**31 - 1


def read_literals(span: Span) -> tuple[Literals, tuple[Span, ...]]:
    """The operations of a run that the grammar's LITERALS terminal matched.

    Returns them with the places of numbers beyond 32 bits, which are read as 0.
    """
    matches = list(_OPERATION.finditer(span.text))
    joined, stages, kinds, microbatches = zip(*(match.groups() for match in matches), strict=True)
    places = np.array([(match.start(2), match.end()) for match in matches], dtype=np.int64) + span.start
    stage_numbers, oversized_stages = _numbers(stages)
    microbatch_numbers, oversized_microbatches = _numbers(microbatches)
    literals = Literals(
        span,
        kinds=np.array([Kind[kind] for kind in kinds], dtype=np.int8),
        stages=stage_numbers,
        microbatches=microbatch_numbers,
        joined=np.array([mark == "&" for mark in joined]),
        starts=places[:, 0],
        ends=places[:, 1],
    )
    oversized = sorted({*oversized_stages, *oversized_microbatches})
    return literals, tuple(Span(span.source, int(places[i, 0]), int(places[i, 1])) for i in oversized)


def join_literals(first: Literals, second: Literals) -> Literals:
    """Two runs that follow each other as one."""
    span = Span(first.span.source, first.span.start, second.span.end)
    columns = ("kinds", "stages", "microbatches", "joined", "starts", "ends")
    return Literals(span, *(np.concatenate([getattr(run, name) for run in (first, second)]) for name in columns))


def _numbers(texts: tuple[str, ...]) -> tuple[np.ndarray, list[int]]:
    """The numbers written (-1 where there is none) and the indices of those beyond 32 bits."""
    oversized = [i for i, text in enumerate(texts) if len(text) > 9 and (len(text) > 18 or int(text) > _LARGEST)]
    if oversized:
        texts = tuple("0" if i in set(oversized) else text for i, text in enumerate(texts))
    return np.array([int(text) if text else -1 for text in texts], dtype=np.int32), oversized
