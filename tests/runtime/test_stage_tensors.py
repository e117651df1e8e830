"""How many tensors and gradients cross: what is allowed, and what a wrong number is called (cases B14 and B15)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from runtime_models import HOT, WIDTH, Dense, first_and_last, sgd
from runtime_reference import EXACT, only, written
from torch import nn

import piper_dsl as piper

TRAIN = "ranks 2\nmicrobatches 2\nrank 0: F0 F1 B0 B1 OPT\nrank 1: F0 B0 F1 B1 OPT"
GRADIENTS = TRAIN.replace(" OPT", "")
HALVES = "ranks 2\nmicrobatches 2\nrank 0: F0 F1 I0 W0 I1 W1\nrank 1: F0 I0 W0 F1 I1 W1"


class Three(nn.Module):
    """Three tensors, of which the first alone needs a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = self.linear(x)
        return hidden, x + 1, (x > 0).long()


class TakesThree(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor, shifted: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.linear(hidden) * mask + shifted


class Pair(Dense):
    """Two tensors that need a gradient."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = self.linear(x)
        return hidden, hidden * 2


class IgnoresWhenHot(Dense):
    """Leaves its second input aside in a microbatch beyond HOT."""

    def forward(self, hidden: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return self.linear(hidden) if hidden.detach().max() > HOT else self.linear(hidden) + other


class PairWhenHot(Dense):
    def forward(self, x: torch.Tensor) -> Any:
        hidden = self.linear(x)
        return (hidden, hidden) if x.max() > HOT else hidden


class LooksAtValues(Dense):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) if x.max() > HOT else self.linear(x) * 2


class Returns(nn.Module):
    """Returns what it is told to."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: torch.Tensor) -> Any:
        return self.value


class _Gradients(torch.autograd.Function):
    """Adds, and returns as many gradients as it is told to."""

    @staticmethod
    def forward(ctx: Any, one: torch.Tensor, other: torch.Tensor, count: int) -> torch.Tensor:
        ctx.count = count
        return one + other

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return (gradient,) * ctx.count


class GivesGradients(Dense):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, hidden: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return self.linear(_Gradients.apply(hidden, other, self.count))


def _batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Two microbatches of two samples; the second is beyond HOT."""
    x = torch.randn(4, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[2:] += 10 * HOT
    return x, torch.zeros(4, WIDTH, dtype=torch.float64)


def _gradients(stages: list[nn.Module], schedule: str) -> dict[int, dict[str, torch.Tensor]]:
    with piper.Pipeline(stages, written(schedule), loss_fn=first_and_last) as pipeline:
        pipeline.step(*_batch())
        assert pipeline.held() == [0, 0]
        return pipeline.gradients()


def _by_microbatches(stages: list[nn.Module]) -> list[nn.Module]:
    """Copies of the stages with the gradients of one process, one microbatch after the other."""
    first, second = copy.deepcopy(stages)
    for x, y in zip(*(part.chunk(2) for part in _batch()), strict=True):
        (first_and_last(second(*first(x)), y) / 2).backward()
    return [first, second]


@pytest.mark.parametrize("schedule", [GRADIENTS, HALVES], ids=["B", "I and W"])
@pytest.mark.parametrize("stages", [(Three, TakesThree), (Pair, IgnoresWhenHot)], ids=["B14", "B15"])
def test_gradients_are_those_of_one_process(stages: tuple[type[nn.Module], ...], schedule: str) -> None:
    torch.manual_seed(0)
    model = [make().double() for make in stages]
    found = _gradients(model, schedule)
    for number, stage in enumerate(_by_microbatches(model)):
        for name, parameter in stage.named_parameters():
            torch.testing.assert_close(found[number][name], parameter.grad, rtol=EXACT, atol=EXACT)


def test_one_gradient_comes_back_for_three_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    from piper_dsl.ir.operations import Kind
    from piper_dsl.runtime.rank import Rank

    counts: dict[Kind, set[int]] = {}
    receive = Rank.receive

    def counted(self: Rank, kind: Kind, message: Any) -> None:
        counts.setdefault(kind, set()).add(len(message.tensors))
        receive(self, kind, message)

    monkeypatch.setattr(Rank, "receive", counted)
    _gradients([Three().double(), TakesThree().double()], GRADIENTS)
    assert counts == {Kind.F: {3}, Kind.B: {1}}


def _failure(stages: list[nn.Module], loss_fn: Any = first_and_last) -> str:
    stages = [stage.double() for stage in stages]
    with piper.Pipeline(stages, written(TRAIN), loss_fn=loss_fn, optimizer=sgd) as pipeline:
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(*_batch())
        return f"{only(error).code}: {only(error).message}"


WRONG = {
    # name: (stages, place, message)
    "too few": (
        [Pair(), TakesThree()],
        "P705: stage 1: ",
        "its forward takes 3 tensors (hidden, shifted, mask), but stage 0 returned 2",
    ),
    "too many in one microbatch": (
        [PairWhenHot(), nn.Linear(WIDTH, WIDTH)],
        "stage 1, forward (F) of microbatch 1",
        "its forward takes 1 tensors (input), but stage 0 returned 2",
    ),
    "batch": (
        [TakesThree(), Dense()],
        "P705: stage 0: ",
        "its forward takes 3 tensors (hidden, shifted, mask), but the batch has 1",
    ),
    "nothing": ([Returns(()), Dense()], "P705: stage 0", "not an empty tuple"),
    "None": ([Returns(None), Dense()], "P705: stage 0", "not a NoneType"),
    "three gradients": (
        [Pair(), GivesGradients(4)],
        "stage 1, backward (B) of microbatch 0",
        "incorrect number of gradients (expected 3, got 4)",
    ),
    "no gradients": (
        [Pair(), GivesGradients(0)],
        "stage 1, backward (B) of microbatch 0",
        "incorrect number of gradients (expected 3, got 0)",
    ),
}


@pytest.mark.parametrize(("stages", "place", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_number_names_stage_microbatch_and_counts(stages: list[nn.Module], place: str, message: str) -> None:
    found = _failure(stages)
    assert place in found
    assert message in found


def test_a_loss_without_a_gradient_would_train_nothing() -> None:
    found = _failure([Dense(), Dense()], lambda hidden, target: (hidden.detach() - target).square().mean())
    assert found.startswith("P705: the loss of stage 1 cannot take torch.float64 (2, 3), torch.float64 (2, 3): ")
    assert "the loss has no gradient" in found


def test_a_loss_without_a_gradient_is_found_in_the_first_step_where_stages_look_at_values() -> None:
    found = _failure([Dense(), LooksAtValues()], lambda hidden, target: (hidden.detach() - target).square().mean())
    assert "stage 1, forward (F) of microbatch 0" in found
    assert "the loss has no gradient" in found
