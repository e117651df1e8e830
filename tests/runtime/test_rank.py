"""One rank, driven by hand: what messages carry, what is held, what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from runtime_models import WIDTH, Front, Middle, mixed_batch
from torch import nn

from piper_dsl.ir import Kind, Operation, Placement, StageGraph
from piper_dsl.ir.placement import loop_ranks
from piper_dsl.runtime.failure import OperationFailed
from piper_dsl.runtime.message import Message
from piper_dsl.runtime.rank import Rank
from piper_dsl.runtime.spec import Batch, RankSpec

F0, B0 = Operation(Kind.F, 0, 0), Operation(Kind.B, 0, 0)


def _rank(rank: int, module: nn.Module, loss_fn: Callable[..., object] = nn.functional.mse_loss) -> Rank:
    spec = RankSpec(
        rank=rank,
        graph=StageGraph.chain(3),
        placement=Placement.by_stage(loop_ranks(3, 3), 3, 2),
        modules={rank: module.double()},
        trained=True,
        recomputed=frozenset(),
        steps=False,
        loss_fn=loss_fn,
        optimizer=None,
        scale=0.5,
    )
    return Rank(spec)


def _forwarded(step: int = 4) -> tuple[Rank, Message]:
    """Rank 0 after the forward of microbatch 0, and what it sent."""
    torch.manual_seed(0)
    rank = _rank(0, Front())
    rank.load(Batch(step, {(0, i): mixed_batch(2, i)[0] for i in range(2)}))
    rank.run(F0)
    return rank, rank.send(Kind.F, 0, 1, 0)


def test_forward_sends_all_outputs_and_backward_only_gradients() -> None:
    # Case B14: four tensors forward, two of which need a gradient; two gradients back.
    first, message = _forwarded()
    assert (message.step, message.source, message.target, message.microbatch) == (4, 0, 1, 0)
    assert [x.dtype for x in message.tensors] == [torch.float64, torch.int64, torch.float64, torch.float64]
    assert message.needs_grad == (True, False, True, False)
    assert not any(x.requires_grad for x in message.tensors)

    second = _rank(1, Middle())
    second.load(Batch(4))
    second.receive(Kind.F, message)
    second.run(Operation(Kind.F, 1, 0))
    onward = second.send(Kind.F, 1, 2, 0)
    gradients = tuple(torch.ones_like(x) for x, flag in zip(onward.tensors, onward.needs_grad, strict=True) if flag)
    second.receive(Kind.B, Message(4, 2, 1, 0, gradients))
    second.run(Operation(Kind.B, 1, 0))
    back = second.send(Kind.B, 1, 0, 0)
    assert [x.shape for x in back.tensors] == [(2, WIDTH), (2, WIDTH)]
    assert back.needs_grad == ()
    first.receive(Kind.B, back)
    first.run(B0)
    assert sorted(first.gradients()[0]) == ["embedding.weight", "linear.bias", "linear.weight"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_wrong_number_of_gradients_is_an_error_with_both_counts(count: int) -> None:
    rank, _ = _forwarded()
    gradient = torch.ones(2, WIDTH, dtype=torch.float64)
    rank.receive(Kind.B, Message(4, 1, 0, 0, (gradient,) * count))
    with pytest.raises(OperationFailed) as failed:
        rank.run(B0)
    assert str(failed.value) == (
        f"rank 0: stage 0, backward (B) of microbatch 0: ValueError: "
        f"2 outputs need a gradient, but {count} gradients arrived"
    )


def test_a_message_of_another_step_is_refused() -> None:
    _, message = _forwarded(step=3)
    second = _rank(1, Middle())
    second.load(Batch(4))
    with pytest.raises(ValueError, match="a message of step 3 arrived in step 4"):
        second.receive(Kind.F, message)


def test_what_is_held_is_dropped_by_free_and_by_a_new_step() -> None:
    rank, _ = _forwarded()
    rank.run(Operation(Kind.F, 0, 1))
    assert rank.held() == 2
    rank.free(0, 0)
    assert rank.held() == 1
    rank.load(Batch(5, {(0, 0): mixed_batch(2, 0)[0]}))
    assert rank.held() == 0


def test_an_input_that_never_came_names_its_stage() -> None:
    rank = _rank(1, Middle())
    rank.load(Batch(0))
    with pytest.raises(OperationFailed, match=r"^rank 1: stage 1, forward \(F\) of microbatch 0: .*from stage 0$"):
        rank.run(Operation(Kind.F, 1, 0))


@pytest.mark.parametrize(
    ("result", "words"),
    [(lambda x: {"hidden": x}, "not a dict"), (lambda x: (x, 3), "not a int"), (lambda x: None, "not a NoneType")],
)
def test_a_stage_that_returns_no_tensors_is_an_error(result: Callable[..., object], words: str) -> None:
    class Wrong(nn.Module):
        def forward(self, ids: torch.Tensor, x: torch.Tensor) -> object:
            return result(x)

    rank = _rank(0, Wrong())
    rank.load(Batch(0, {(0, 0): mixed_batch(2, 0)[0]}))
    with pytest.raises(OperationFailed) as failed:
        rank.run(F0)
    assert str(failed.value).startswith("rank 0: stage 0, forward (F) of microbatch 0: TypeError: a stage returns")
    assert str(failed.value).endswith(words)


@pytest.mark.parametrize(
    ("loss", "words"), [(lambda x, y: x - y, "a tensor of shape (2, 3)"), (lambda x, y: 0.5, "a float")]
)
def test_a_loss_that_is_no_number_in_a_tensor_is_an_error(loss: Callable[..., object], words: str) -> None:
    rank = _rank(2, nn.Identity(), loss)
    rank.load(Batch(0, {}, {(2, 0): (torch.zeros(2, WIDTH),)}))
    rank.receive(Kind.F, Message(0, 1, 2, 0, (torch.zeros(2, WIDTH),), (True,)))
    with pytest.raises(OperationFailed) as failed:
        rank.run(Operation(Kind.F, 2, 0))
    assert str(failed.value) == (
        f"rank 2: stage 2, forward (F) of microbatch 0: TypeError: the loss must be one number in a tensor, not {words}"
    )
