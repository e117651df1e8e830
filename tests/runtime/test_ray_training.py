"""Target ray-dag against one process."""

from __future__ import annotations

import pytest
import torch
from runtime_models import WIDTH, Bare, Dense, Linear, Mix, first_and_last, mixed, mixed_batch, sgd
from runtime_reference import (
    EXACT,
    SINGLE,
    assert_close,
    close,
    gradients_of,
    operations,
    rows,
    snapshot,
    trained_whole,
    whole_gradients,
    written,
)
from torch import nn

import piper_dsl as piper

pytestmark = pytest.mark.usefixtures("warm")

MSE = nn.functional.mse_loss
LIMIT = 60.0
"""Seconds a step may take, so that a hang ends as an error."""


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved_1f1b", "zb_h1"])
def test_trains_as_one_process(name: str) -> None:
    # Four tensors on every boundary, two of them without a gradient (case B14).
    schedule = piper.load(name, p=2, m=4)
    stages = mixed(schedule.stages)
    batches = [mixed_batch(8, seed) for seed in range(3)]
    losses, state = trained_whole(stages, MSE, sgd, batches)
    arguments = {"loss_fn": MSE, "optimizer": sgd, "target": "ray-dag", "timeout": LIMIT}
    with piper.Pipeline(stages, schedule, **arguments) as pipeline:
        found, states, copies = [], [], []
        for batch in batches:
            found.append(pipeline.step(*batch))
            # Case G1: the log of every actor is its row.
            assert operations(pipeline) == rows(schedule)
            assert pipeline.held() == [0, 0]
            assert pipeline.gradients() == {stage: {} for stage in range(schedule.stages)}
            states.append(pipeline.state_dict())
            copies.append(snapshot(states[-1]))
        assert found == close(losses, EXACT)
        assert_close(states[-1], state, EXACT)
        # What was handed out earlier did not change with the steps that followed.
        for one, copy in zip(states, copies, strict=True):
            assert_close(one, copy, 0.0)
        assert not torch.equal(states[0][0]["linear.bias"], states[-1][0]["linear.bias"])
        assert set(pipeline.last.losses) == {(schedule.stages - 1, i) for i in range(4)}


def test_a_vee_with_two_stages_per_rank_without_optimizer() -> None:
    # Whole, split and recomputed backwards; gradients add up over the steps (case F4).
    text = """
    ranks 2
    stages 4
    microbatches 2
    place vee
    rank 0: 0F0 0F1 3F0 3I0 3F1 3I1 3W1 0R0 0B0 3W0 0I1 0W1
    rank 1: 1F0 2F0 1F1 2F1 2B0 1R0 1R1 1I0 1W0 2B1 1B1
    """
    schedule = written(text.replace("0R0 0B0", "0R0 0B0 0R1"))
    batches = [mixed_batch(4, seed) for seed in range(2)]
    with piper.Pipeline(mixed(4), schedule, loss_fn=MSE, target="ray-dag", timeout=LIMIT) as pipeline:
        handed_out = []
        for count in (1, 2):
            losses, gradients = whole_gradients(mixed(4), MSE, batches[:count])
            assert pipeline.step(*batches[count - 1]) == close(losses[-1], EXACT)
            handed_out.append((pipeline.gradients(), gradients))
            assert operations(pipeline) == rows(schedule)
            assert pipeline.held() == [0, 0]
        for found, wanted in handed_out:
            assert_close(found, wanted, EXACT)


def test_evaluation() -> None:
    schedule = written("ranks 2\nmicrobatches 2\nrank r { F[0:2] }")
    batch = mixed_batch(4, 0)
    losses, _ = whole_gradients(mixed(2), MSE, [batch])
    with piper.Pipeline(mixed(2), schedule, loss_fn=MSE, target="ray-dag", timeout=LIMIT) as pipeline:
        for _ in range(3):
            assert pipeline.step(*batch) == close(losses[0], EXACT)
            assert operations(pipeline) == rows(schedule)
            assert pipeline.held() == [0, 0]
        assert pipeline.gradients() == {0: {}, 1: {}}


def test_recomputing_draws_the_same_random_numbers() -> None:
    # The loss is linear in the dropped weights, so it equals weights times gradients if, and only if, the
    # masks of F and R are the same (Euler).
    torch.manual_seed(0)
    text = "ranks 2\nmicrobatches 3\nrank 0 { F[0:3] for i in 0:3 { R[i] B[i] } }\nrank 1 { F[0:3] B[0:3] }"
    x = torch.randn(6, WIDTH, dtype=torch.float64)
    stages = [Linear(), nn.Identity()]
    with piper.Pipeline(
        stages, written(text), loss_fn=lambda found, _: found.mean(), target="ray-dag", timeout=LIMIT
    ) as pipeline:
        loss = pipeline.step(x, x)
        weights, gradients = pipeline.state_dict()[0]["weight"], pipeline.gradients()[0]["weight"]
    assert loss == close((weights * gradients).sum().item(), EXACT)
    assert abs(loss) > 1e-3


def test_a_graph_that_forks_and_joins_across_ranks() -> None:
    # Stage 0 sends to three stages on two ranks and one at home; stage 4 reads them all; halves and wholes.
    text = """
    ranks 3
    stages 5
    microbatches 2
    edge 0 -> 1
    edge 0 -> 2
    edge 0 -> 3
    edge 0 -> 4
    edge 1 -> 4
    edge 2 -> 4
    edge 3 -> 4
    place s on 0 if s == 0 or s == 4 else 2 if s == 2 else 1
    rank 0: 0F0 0F1 4F0 4I0 4F1 4I1 4W0 0B0 0B1 4W1
    rank 1: 1F0 3F0 1F1 3F1 3B0 1B0 1B1 3B1
    rank 2: 2F0 2F1 2B0 2B1
    """

    def made() -> list[nn.Module]:
        torch.manual_seed(1)
        return [Mix().double() for _ in range(5)]

    x, y = torch.randn(2, 4, WIDTH, dtype=torch.float64)
    whole = made()
    hidden = whole[0](x)
    loss = MSE(whole[4](hidden, *(whole[s](hidden) for s in (1, 2, 3))), y)
    loss.backward()
    with piper.Pipeline(made(), written(text), loss_fn=MSE, target="ray-dag", timeout=LIMIT) as pipeline:
        for _ in range(2):
            assert pipeline.step(x, y) == close(loss.item(), EXACT)
            assert operations(pipeline) == rows(pipeline.schedule)
        wanted = {s: {name: 2 * g for name, g in found.items()} for s, found in gradients_of(whole).items()}
        assert_close(pipeline.gradients(), wanted, EXACT)
        assert pipeline.held() == [0] * 3
        assert pipeline.evaluate(x, y) == close(loss.item(), EXACT)


def test_float32_large_messages_and_a_rank_without_parameters() -> None:
    # Cases B17, B20, G5: 4 MB a message, larger than Ray's buffers are by default; AdamW on the rest.
    torch.manual_seed(0)

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(WIDTH, 1 << 19)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.linear(x), x

    class Narrow(nn.Module):
        def forward(self, wide: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return wide[:, :WIDTH] + wide.mean(dim=1, keepdim=True) + x

    def adam(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=0.01, eps=1e-2)

    batches = [torch.randn(2, 4, WIDTH).unbind() for _ in range(3)]
    stages = [Wide(), Narrow()]
    losses, state = trained_whole(stages, MSE, adam, batches)
    schedule = piper.load("zb_h1", p=2, m=2)
    arguments = {"loss_fn": MSE, "optimizer": adam, "target": "ray-dag", "timeout": LIMIT}
    with piper.Pipeline(stages, schedule, **arguments) as pipeline:
        assert [pipeline.step(*batch) for batch in batches] == close(losses, SINGLE)
        assert_close(pipeline.state_dict(), state, SINGLE)
        assert operations(pipeline) == rows(schedule)


def test_one_rank_alone() -> None:
    torch.manual_seed(0)
    stages = [Dense().double(), Bare()]
    batch = torch.randn(2, 4, WIDTH, dtype=torch.float64).unbind()
    losses, gradients = whole_gradients(stages, first_and_last, [batch])
    schedule = written("ranks 1\nstages 2\nmicrobatches 2\nrank 0: 0F0 1F0 1B0 0B0 0F1 1F1 1I1 0I1 1W1 0W1")
    with piper.Pipeline(stages, schedule, loss_fn=first_and_last, target="ray-dag", timeout=LIMIT) as pipeline:
        assert pipeline.step(*batch) == close(losses[0], EXACT)
        assert_close(pipeline.gradients(), gradients, EXACT)
        assert operations(pipeline) == rows(schedule)
