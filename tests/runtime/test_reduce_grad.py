"""REDUCE_GRAD: gradients are summed over the copies of a stage where it is written."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from runtime_cases import REDUCED
from runtime_models import WIDTH, Dense, first_and_last, sgd
from runtime_reference import EXACT, assert_close, close, trained_whole, written
from torch import nn

import piper_dsl as piper
from piper_dsl.runtime.rank import Rank
from piper_dsl.runtime.shared import SharedGroup
from piper_dsl.targets.local_sums import LocalSums

TIED = """
ranks 2
stages 2
microbatches 2
tie 0, 1
rank 0: 0F0 0F1 0B0 0B1 0REDUCE_GRAD 0OPT
rank 1: 1F0 1F1 1B0 1B1 1REDUCE_GRAD 1OPT
"""


def _noted(patch: pytest.MonkeyPatch) -> list[str]:
    """What ranks run and start from here on, as `rank:operation` and `rank:stages summed by so many`."""
    notes: list[str] = []

    def run(self: Rank, operation: piper.Operation, real: Any = Rank.run) -> None:
        notes.append(f"{self.number}:{operation}")
        real(self, operation)

    def start(self: LocalSums, group: SharedGroup, part: torch.Tensor, real: Any = LocalSums.start) -> None:
        stages = ",".join(map(str, sorted({stage for stage, _ in group.members})))
        notes.append(f"{self._rank}:sum of {stages} by {len(group.ranks)}")
        real(self, group, part)

    patch.setattr(Rank, "run", run)
    patch.setattr(LocalSums, "start", start)
    return notes


def _of_rank(notes: list[str], rank: int, *kinds: str) -> list[str]:
    own = [note.partition(":")[2] for note in notes if note.startswith(f"{rank}:")]
    return [note for note in own if any(kind in note for kind in kinds)]


def test_a_sum_starts_where_it_is_written_and_else_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = _noted(monkeypatch)
    stages = [Dense().double() for _ in range(4)]
    batch = torch.randn(2, 8, WIDTH, dtype=torch.float64).unbind()
    with piper.Pipeline(stages, written(REDUCED), loss_fn=first_and_last, optimizer=sgd, replicas=2) as pipeline:
        pipeline.step(*batch)
        for rank, last in ((0, "0B1"), (2, "0B3")):
            found = _of_rank(notes, rank, "REDUCE", "sum", last)
            assert found == ["2REDUCE_GRAD", "sum of 2 by 2", last, "0REDUCE_GRAD", "sum of 0 by 2"]
        # Stage 1 has no REDUCE_GRAD: it waits for the end.
        for rank, last in ((1, "1B1"), (3, "1B3")):
            found = _of_rank(notes, rank, "REDUCE", "sum", last, "OPT")
            assert found == ["3REDUCE_GRAD", "sum of 3 by 2", last, "1OPT", "3OPT", "sum of 1 by 2"]
        notes.clear()
        pipeline.evaluate(*batch)
        assert _of_rank(notes, 0, "REDUCE", "sum") == []


def test_steps_that_only_accumulate_sum_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = [Dense().double() for _ in range(4)]
    arguments = {"loss_fn": first_and_last, "optimizer": sgd, "replicas": 2, "accumulate": 2}
    with piper.Pipeline(stages, written(REDUCED), **arguments) as pipeline:
        notes = _noted(monkeypatch)
        for sums in (0, 8):
            notes.clear()
            pipeline.step(*torch.randn(2, 8, WIDTH, dtype=torch.float64).unbind())
            assert len([note for note in notes if "sum" in note]) == sums


def test_what_is_tied_is_summed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of two tied stages, neither knows when the other is ready.
    notes = _noted(monkeypatch)
    torch.manual_seed(0)
    stages = [Dense().double(), Dense().double()]
    stages[1].linear.weight = stages[0].linear.weight
    batches = [torch.randn(2, 8, WIDTH, dtype=torch.float64).unbind() for _ in range(3)]
    losses, state = trained_whole(stages, first_and_last, sgd, batches)
    with piper.Pipeline(stages, written(TIED), loss_fn=first_and_last, optimizer=sgd, replicas=2) as pipeline:
        found = [pipeline.step(*batches[0])]
        assert _of_rank(notes, 2, "REDUCE", "sum") == ["0REDUCE_GRAD", "sum of 0 by 2", "sum of 0 by 4"]
        found += [pipeline.step(*batch) for batch in batches[1:]]
        assert found == close(losses, EXACT)
        assert_close(pipeline.state_dict(), state, EXACT)


def test_gradients_are_summed_in_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    # A weight has 72 bytes and a bias 24: stages of two layers in sums of three and of one parameter.
    monkeypatch.setattr("piper_dsl.runtime.shared.BUCKET", 170)
    stages = [nn.Sequential(*(nn.Linear(WIDTH, WIDTH).double() for _ in range(2))) for _ in range(2)]
    batches = [torch.randn(2, 4, WIDTH, dtype=torch.float64).unbind() for _ in range(2)]
    losses, state = trained_whole(stages, first_and_last, sgd, batches)
    schedule = piper.load("1f1b", p=2, m=2)
    with piper.Pipeline(stages, schedule, loss_fn=first_and_last, optimizer=sgd, replicas=2) as pipeline:
        notes = _noted(monkeypatch)
        assert [pipeline.step(*batch) for batch in batches] == close(losses, EXACT)
        assert_close(pipeline.state_dict(), state, EXACT)
    assert _of_rank(notes, 0, "sum") == ["sum of 0 by 2"] * 4
