"""Stage graphs that are no chain, on target local."""

from __future__ import annotations

import torch
from runtime_models import WIDTH, Bilinear, sgd
from runtime_reference import EXACT, assert_close, close, gradients_of, operations, rows, written
from torch import nn

import piper_dsl as piper

MSE = nn.functional.mse_loss

TWO_TOWERS = """
ranks 4
microbatches 3
edge 0 -> 2
edge 1 -> 2
edge 2 -> 3
rank r { F[0:3] BACKWARD }
"""

DIAMOND = """
ranks 2
stages 4
microbatches 2
edge 0 -> 1
edge 0 -> 2
edge 1 -> 3
edge 2 -> 3
rank 0: 0F0 2F0 0F1 2F1 2B0 0B0 2B1 0B1
rank 1: 1F0 3F0 1F1 3F1 3B0 1B0 3B1 1B1
"""

TWO_LOSSES = """
ranks 3
microbatches 2
edge 0 -> 1
edge 0 -> 2
rank r { F[0:2] B[0:2] OPT }
"""


class _Tower(nn.Module):
    """Two outputs, one of them without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tanh(self.linear(x)), x.sign().long()


class _Two(nn.Module):
    """Reads two towers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * WIDTH, WIDTH)

    def forward(
        self, left: torch.Tensor, left_sign: torch.Tensor, right: torch.Tensor, right_sign: torch.Tensor
    ) -> torch.Tensor:
        return self.linear(torch.cat([left * right_sign, right * left_sign], dim=1))


def test_two_towers_join() -> None:
    for backward in ("B[0:3]", "I[0:3] W[0:3]"):
        torch.manual_seed(0)
        left, right, both, head = (s.double() for s in (_Tower(), _Tower(), _Two(), nn.Linear(WIDTH, WIDTH)))
        images, words, targets = torch.randn(3, 6, WIDTH, dtype=torch.float64)
        loss = MSE(head(both(*left(images), *right(words))), targets)
        loss.backward()
        wanted = gradients_of([left, right, both, head])
        torch.manual_seed(0)
        stages = [s.double() for s in (_Tower(), _Tower(), _Two(), nn.Linear(WIDTH, WIDTH))]
        schedule = written(TWO_TOWERS.replace("BACKWARD", backward))
        with piper.Pipeline(stages, schedule, loss_fn=MSE) as pipeline:
            assert pipeline.step({0: images, 1: words}, targets) == close(loss.item(), EXACT)
            assert_close(pipeline.gradients(), wanted, EXACT)
            assert operations(pipeline) == rows(schedule)
            assert pipeline.held() == [0] * 4


def _four() -> list[nn.Module]:
    torch.manual_seed(1)
    return [s.double() for s in (*(nn.Linear(WIDTH, WIDTH) for _ in range(3)), Bilinear())]


def test_a_diamond_sums_the_gradients_of_its_branches() -> None:
    x, y = torch.randn(2, 4, WIDTH, dtype=torch.float64)
    top, left, right, bottom = _four()
    hidden = top(x)
    loss = MSE(bottom(left(hidden), right(hidden)), y)
    loss.backward()
    with piper.Pipeline(_four(), written(DIAMOND), loss_fn=MSE) as pipeline:
        assert pipeline.step(x, y) == close(loss.item(), EXACT)
        assert_close(pipeline.gradients(), gradients_of([top, left, right, bottom]), EXACT)
        assert pipeline.held() == [0, 0]


def test_two_stages_with_a_loss() -> None:
    x, y, z = torch.randn(3, 4, WIDTH, dtype=torch.float64)
    whole, stages = _four()[:3], _four()[:3]
    loss = MSE(whole[1](whole[0](x)), y) + MSE(whole[2](whole[0](x)), z)
    loss.backward()
    for stage in whole:
        sgd(list(stage.parameters())).step()
    with piper.Pipeline(stages, written(TWO_LOSSES), loss_fn=MSE, optimizer=sgd) as pipeline:
        assert pipeline.step(x, {1: y, 2: z}) == close(loss.item(), EXACT)
        assert_close(pipeline.state_dict(), {s: one.state_dict() for s, one in enumerate(whole)}, EXACT)
