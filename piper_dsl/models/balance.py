"""Stages of even cost: measured where the model could be cut, then grouped."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from .assemble import assemble
from .crossing import remade
from .errors import refusal
from .mutation import changed_values, held_together
from .places import Cut, calls, computes
from .probe import tensors_of
from .stage_module import StageModule
from .trace import Trace

__all__ = ["balanced", "grouped"]

_RUNS = 5
"""Measured runs of every segment, after one that warms up; the fastest counts."""
_SLACK = 1.05
"""How much longer the largest stage may be than it must, for boundaries that carry less."""


def balanced(
    model: nn.Module, traces: Mapping[bool, Trace], example: tuple[Any, ...], stages: int, by: str
) -> list[Cut]:
    """The cuts into ``stages`` stages of which the most expensive is as cheap as can be.

    ``by`` is ``time`` (seconds of forward and backward on the example) or ``parameters``. Among cuts that are
    within 5 % of the best, those are taken over which the fewest bytes go. Raises PipeError (P704) for more
    stages than there are segments to make them of.
    """
    cuts = _candidates(traces)
    if stages > len(cuts) + 1:
        message = f"the model cannot be cut into {stages} stages: it has {len(cuts) + 1} layers to make them of"
        raise refusal(message, f"ask for at most {len(cuts) + 1} stages")
    segments = assemble(model, traces, cuts, fixed_batch=False)
    with _unchanged(model):
        seconds, sent = _measured(segments, example)
    costs = seconds if by == "time" else _parameters(segments)
    return [cuts[end - 1] for end in grouped(costs, sent, stages)]


def _candidates(traces: Mapping[bool, Trace]) -> list[Cut]:
    """The layers before whose first call both modes can be cut, in the order of the calls; one per place."""
    training, evaluation = (_work_before_layers(one) for one in traces.values())
    cuts: list[Cut] = []
    last = (0, 0)
    for name, work in sorted(training.items(), key=lambda item: item[1]):
        here = (work, evaluation.get(name, 0))
        if here[0] > last[0] and here[1] > last[1]:
            cuts.append(name)
            last = here
    return cuts


def _work_before_layers(trace: Trace) -> dict[str, int]:
    """By layer before which a cut can go, how many operations come before it; never none, never all."""
    held = held_together(trace)
    again = remade(trace, changed_values(trace, held))
    before = np.cumsum([0, *(computes(node) and node not in again for node in trace.nodes)])
    return {
        name: int(before[position])
        for name, position in calls(trace).items()
        if 0 < before[position] < before[-1] and not any(position in one for one in held)
    }


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Undoes what running the model changes: its buffers, and the state of the random numbers."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with torch.random.fork_rng():
            yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)


def _measured(segments: Sequence[StageModule], example: tuple[Any, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Per segment, the seconds of its forward and backward, and the bytes it returns."""
    seconds, sent = [], []
    values = tensors_of(example)
    for segment in segments:
        spent = []
        for _ in range(1 + _RUNS):
            leaves = [x.detach().requires_grad_(x.requires_grad) for x in values]
            start = time.perf_counter()
            outputs = tensors_of(segment(*leaves))
            _backward(outputs, leaves, segment)
            if outputs[0].is_cuda:
                torch.cuda.synchronize(outputs[0].device)
            spent.append(time.perf_counter() - start)
        seconds.append(min(spent[1:]))
        sent.append(sum(x.nbytes for x in outputs))
        values = outputs
    return np.array(seconds), np.array(sent)


def _backward(outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], segment: nn.Module) -> None:
    """The backward of what the segment computed; gradients are dropped, not accumulated."""
    roots = [x for x in outputs if x.requires_grad and x.grad_fn is not None]
    wanted = [x for x in (*leaves, *segment.parameters()) if x.requires_grad]
    if roots and wanted:
        torch.autograd.grad(roots, wanted, [torch.ones_like(x) for x in roots], allow_unused=True)


def _parameters(segments: Sequence[StageModule]) -> np.ndarray:
    """Per segment, how many numbers its parameters hold; a tied weight counts where it is first used."""
    seen: set[int] = set()
    counts = []
    for segment in segments:
        own = {id(p): p.numel() for p in segment.parameters() if id(p) not in seen}
        seen |= own.keys()
        counts.append(sum(own.values()))
    return np.array(counts, dtype=float)


def grouped(costs: np.ndarray, sent: np.ndarray, stages: int) -> list[int]:
    """Where groups of neighbours end, the last excepted: the smallest largest sum, then the fewest bytes sent.

    Dynamic programming over prefixes: O(stages · segments²).

    >>> grouped(np.array([1.0, 1.0, 1.0, 3.0]), np.array([8, 8, 8, 0]), 2)
    [3]
    """
    before = np.concatenate([[0.0], np.cumsum(costs)])
    limit = _SLACK * _smallest_largest(before, stages)
    price = np.concatenate([[0.0], sent.astype(float)])
    count = len(costs)
    best = np.full((stages + 1, count + 1), np.inf)
    chosen = np.zeros((stages + 1, count + 1), dtype=int)
    best[0, 0] = 0.0
    for group in range(1, stages + 1):
        for end in range(group, count + 1):
            starts = np.arange(group - 1, end)
            paid = best[group - 1, starts] + np.where(starts > 0, price[starts], 0.0)
            paid = np.where(before[end] - before[starts] <= limit, paid, np.inf)
            chosen[group, end] = starts[int(np.argmin(paid))]
            best[group, end] = paid.min()
    ends = [count]
    for group in range(stages, 1, -1):
        ends.append(int(chosen[group, ends[-1]]))
    return ends[:0:-1]


def _smallest_largest(before: np.ndarray, stages: int) -> float:
    """The smallest sum that the largest of so many groups of neighbours can have."""
    count = len(before) - 1
    best = np.concatenate([[0.0], np.full(count, np.inf)])
    for group in range(1, stages + 1):
        following = np.full(count + 1, np.inf)
        for end in range(group, count + 1):
            starts = np.arange(group - 1, end)
            following[end] = np.maximum(best[starts], before[end] - before[starts]).min()
        best = following
    return float(best[count])
