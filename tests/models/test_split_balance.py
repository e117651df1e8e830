"""Balanced cuts: no others are better, and what is measured decides."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import piper_dsl as piper
from piper_dsl.models.balance import grouped


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[float], list[int], int]:
    """Costs of segments, the bytes each sends on, and how many groups to make."""
    costs = draw(st.lists(st.integers(0, 9).map(float), min_size=1, max_size=8))
    sent = draw(st.lists(st.integers(0, 5), min_size=len(costs), max_size=len(costs)))
    return costs, sent, draw(st.integers(1, len(costs)))


@given(rows())
def test_groups_are_as_even_as_can_be_and_then_send_least(case: tuple[list[float], list[int], int]) -> None:
    costs, sent, stages = case
    found = grouped(np.array(costs), np.array(sent), stages)
    ways = [list(way) for way in combinations(range(1, len(costs)), stages - 1)]

    def largest(way: list[int]) -> float:
        return max(sum(costs[start:end]) for start, end in pairwise([0, *way, len(costs)]))

    def bytes_sent(way: list[int]) -> int:
        return sum(sent[end - 1] for end in way)

    limit = 1.05 * min(map(largest, ways))
    assert found in ways
    assert largest(found) <= limit + 1e-9
    assert bytes_sent(found) == min(bytes_sent(way) for way in ways if largest(way) <= limit + 1e-9)


class Wide(nn.Module):
    """A residual block with a wide inside: a cut in it would carry two tensors."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, width), nn.Linear(width, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.outer(torch.relu(self.inner(x)))


def _blocks(stages: list[nn.Module]) -> list[list[str]]:
    return [sorted({name.split(".")[0] for name, _ in stage.named_parameters()}) for stage in stages]


def test_parameters_decide_and_blocks_stay_whole() -> None:
    model = nn.Sequential(*(Wide(64) for _ in range(6)))
    made = piper.split_model(model, torch.randn(2, 8), "parameters", stages=3)
    assert _blocks(made) == [["0", "1"], ["2", "3"], ["4", "5"]]


def test_a_tied_weight_counts_once() -> None:
    model = nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(9)))
    for layer in model[1:6]:
        layer.weight = model[0].weight
    made = piper.split_model(model, torch.randn(2, 8), "parameters", stages=2)
    assert _blocks(made)[1] == ["7", "8"]


def test_measured_time_decides_where_parameters_would_not() -> None:
    class Busy(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(150):
                x = torch.tanh(x)
            return super().forward(x)

    model = nn.Sequential(Busy(8, 8), *(nn.Linear(8, 8) for _ in range(6)))
    made = piper.split_model(model, torch.randn(4096, 8), "time", stages=2)
    assert _blocks(made)[0] == ["0"]
    by_parameters = piper.split_model(model, torch.randn(4096, 8), "parameters", stages=2)
    assert len(_blocks(by_parameters)[0]) > 1
