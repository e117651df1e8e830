"""Target local against one process: losses, parameters, gradients."""

from __future__ import annotations

import copy
import weakref
from itertools import pairwise

import pytest
import torch
from runtime_models import WIDTH, Bare, Dense, Frozen, TwoBiases, first_and_last, mixed, mixed_batch, sgd
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

LIBRARY = ("gpipe", "1f1b", "interleaved_1f1b", "zb_h1")
MSE = nn.functional.mse_loss


@pytest.mark.parametrize("name", LIBRARY)
@pytest.mark.parametrize("p", [2, 4])
def test_trains_as_one_process(name: str, p: int) -> None:
    # Four tensors on every boundary, two of them without a gradient (case B14).
    schedule = piper.load(name, p=p, m=4)
    stages = mixed(schedule.stages)
    batches = [mixed_batch(8, seed) for seed in range(4)]
    losses, state = trained_whole(stages, MSE, sgd, batches)
    with piper.Pipeline(stages, schedule, loss_fn=MSE, optimizer=sgd) as pipeline:
        found = []
        for inputs, targets in batches:
            found.append(pipeline.step(inputs, targets))
            assert operations(pipeline) == rows(schedule)
            assert pipeline.held() == [0] * p
            assert pipeline.gradients() == {stage: {} for stage in range(schedule.stages)}
        assert found == close(losses, EXACT)
        assert_close(pipeline.state_dict(), state, EXACT)


@pytest.mark.parametrize("name", LIBRARY)
def test_trains_in_float32_with_adam(name: str) -> None:
    schedule = piper.load(name, p=2, m=4)
    torch.manual_seed(0)
    stages = [nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(schedule.stages)]
    batches = [torch.randn(2, 8, 6).unbind() for _ in range(3)]

    def adam(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        # A large eps, or Adam makes steps of full size out of rounding where a gradient is next to zero.
        return torch.optim.AdamW(parameters, lr=0.01, eps=1e-2)

    losses, state = trained_whole(stages, MSE, adam, batches)
    with piper.Pipeline(stages, schedule, loss_fn=MSE, optimizer=adam) as pipeline:
        assert [pipeline.step(*batch) for batch in batches] == close(losses, SINGLE)
        assert_close(pipeline.state_dict(), state, SINGLE)


def test_losses_come_by_stage_and_microbatch() -> None:
    stages = mixed(2)
    inputs, targets = mixed_batch(8, 0)
    with piper.Pipeline(stages, piper.load("1f1b", p=2, m=4), loss_fn=MSE, optimizer=sgd) as pipeline:
        wanted = {}
        for i in range(4):
            part = slice(2 * i, 2 * i + 2)
            with torch.no_grad():
                wanted[1, i] = MSE(stages[1](*stages[0](*(x[part] for x in inputs))), targets[part]).item()
        loss = pipeline.step(inputs, targets)
        assert dict(pipeline.last.losses) == close(wanted, EXACT)
        assert loss == close(sum(wanted.values()) / 4, EXACT)


NO_OPT = {
    "whole backward": "ranks 2\nmicrobatches 4\nrank r { F[0:4] B[0:4] }",
    "split backward": "ranks 2\nmicrobatches 4\nrank r { F[0:4] I[0:4] W[0:4] }",
    "split, weights in reverse": "ranks 2\nmicrobatches 4\nrank r { F[0:4] I[0:4] W[3:-1:-1] }",
    "mixed": "ranks 2\nmicrobatches 4\nrank 0: F0 F1 F2 F3 I0 B1 W0 B2 I3 W3\nrank 1: F0 B0 F1 I1 F2 F3 B2 W1 B3",
    "backwards in reverse": "ranks 2\nmicrobatches 4\nrank r { F[0:4] B[3:-1:-1] }",
    "recomputed": "ranks 2\nmicrobatches 4\nrank r { F[0:4] for i in 0:4 { R[i] B[i] } }",
    "recomputed, split": "ranks 2\nmicrobatches 4\nrank r { F[0:4] for i in 0:4 { R[i] I[i] } W[0:4] }",
    "recomputed on one stage": "ranks 2\nmicrobatches 4\nrank 0 { F[0:4] for i in 0:4 { R[i] B[i] } }\n"
    "rank 1 { for i in 0:4 { F[i] B[i] } }",
    "recomputed on some microbatches": "ranks 2\nmicrobatches 4\n"
    "rank 0 { F[0:4] R[0] B[0:2] R[2] B[2:4] }\nrank 1 { F[0:4] B[0] R[1] B[1:4] }",
}


@pytest.mark.parametrize("text", NO_OPT.values(), ids=NO_OPT)
def test_gradients_of_a_schedule_without_optimizer(text: str) -> None:
    # Two steps: gradients add up, and the earlier ones are not scaled again (case F4).
    stages = mixed(2)
    batches = [mixed_batch(8, seed) for seed in range(2)]
    with piper.Pipeline(stages, written(text), loss_fn=MSE) as pipeline:
        for count in (1, 2):
            losses, gradients = whole_gradients(mixed(2), MSE, batches[:count])
            assert pipeline.step(*batches[count - 1]) == close(losses[-1], EXACT)
            assert_close(pipeline.gradients(), gradients, EXACT)
            assert operations(pipeline) == rows(pipeline.schedule)
            assert pipeline.held() == [0, 0]
        assert_close(pipeline.state_dict(), {s: one.state_dict() for s, one in enumerate(mixed(2))}, 0.0)


@pytest.mark.parametrize("backward", ["B[i]", "I[i] W[i]"])
def test_parameters_whose_gradients_are_one_tensor(backward: str) -> None:
    torch.manual_seed(0)
    stages = [TwoBiases().double(), TwoBiases().double()]
    batch = torch.randn(2, 4, WIDTH, dtype=torch.float64).unbind()
    losses, gradients = whole_gradients(stages, first_and_last, [batch])
    schedule = written(f"ranks 2\nmicrobatches 4\nrank r {{ for i in 0:4 {{ F[i] {backward} }} }}")
    with piper.Pipeline(stages, schedule, loss_fn=first_and_last) as pipeline:
        assert pipeline.step(*batch) == close(losses[0], EXACT)
        assert_close(pipeline.gradients(), gradients, EXACT)


VEE = {
    "whole": "F[i]@stage(0) F[i]@stage(1) B[i]@stage(1) B[i]@stage(0)",
    "split": "F[i]@stage(0) F[i]@stage(1) I[i]@stage(1) I[i]@stage(0) W[i]@stage(0) W[i]@stage(1)",
}


@pytest.mark.parametrize("body", VEE.values(), ids=VEE)
@pytest.mark.parametrize("ranks", [1, 2])
def test_two_stages_per_rank_placed_as_a_vee(body: str, ranks: int) -> None:
    text = "param p = 2\nranks p\nstages 2 * p\nmicrobatches 3\nplace vee\nrank r { for i in 0:3 { " + body + " } }"
    schedule = written(text, p=ranks)
    stages = mixed(schedule.stages)
    batch = mixed_batch(6, 0)
    losses, gradients = whole_gradients(stages, MSE, [batch])
    with piper.Pipeline(stages, schedule, loss_fn=MSE) as pipeline:
        assert pipeline.step(*batch) == close(losses[0], EXACT)
        assert_close(pipeline.gradients(), gradients, EXACT)
        assert operations(pipeline) == rows(schedule)
        assert pipeline.held() == [0] * ranks


@pytest.mark.parametrize("where", [0, 1, 2])
@pytest.mark.parametrize("kind", [Bare, Frozen])
@pytest.mark.parametrize("name", ["1f1b", "zb_h1"])
def test_a_stage_with_nothing_to_train(name: str, kind: type[nn.Module], where: int) -> None:
    # Case B17: it forwards and returns gradients; its optimizer step is nothing.
    torch.manual_seed(where)
    stages = [Dense() for _ in range(3)]
    stages[where] = kind()
    stages = [stage.double() for stage in stages]
    batches = [torch.randn(2, 4, WIDTH, dtype=torch.float64).unbind() for _ in range(2)]
    losses, state = trained_whole(stages, first_and_last, sgd, batches)
    schedule = piper.load(name, p=3, m=4)
    with piper.Pipeline(stages, schedule, loss_fn=first_and_last, optimizer=sgd) as pipeline:
        assert [pipeline.step(*batch) for batch in batches] == close(losses, EXACT)
        assert_close(pipeline.state_dict(), state, EXACT)
        assert operations(pipeline) == rows(schedule)


class _SecondSometimes(Dense):
    """Ignores its second input where the first is negative on the whole (case B15)."""

    def forward(self, hidden: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        result = self.linear(hidden)
        return result if hidden.sum() < 0 else result + others[0]


class _Pair(Dense):
    def forward(self, hidden: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return hidden * self.linear.bias.abs(), self.linear(hidden)


@pytest.mark.parametrize("backward", ["B[0:4]", "I[0:4] W[0:4]"])
def test_an_input_that_one_microbatch_does_not_use(backward: str) -> None:
    torch.manual_seed(0)
    stages: list[nn.Module] = [_Pair().double(), _SecondSometimes().double()]
    signs = torch.tensor([1.0, -1.0, 1.0, 1.0], dtype=torch.float64).repeat_interleave(2)
    inputs = torch.rand(8, WIDTH, dtype=torch.float64) * signs.unsqueeze(1)
    targets = torch.randn(8, WIDTH, dtype=torch.float64)
    reference = copy.deepcopy(stages)
    for x, y in zip(inputs.chunk(4), targets.chunk(4), strict=True):
        (MSE(reference[1](*reference[0](x)), y) / 4).backward()
    text = f"ranks 2\nmicrobatches 4\nrank r {{ F[0:4] {backward} }}"
    with piper.Pipeline(stages, written(text), loss_fn=MSE) as pipeline:
        pipeline.step(inputs, targets)
        assert_close(pipeline.gradients(), gradients_of(reference), EXACT)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_gradients_do_not_depend_on_the_number_of_ranks(reduction: str) -> None:
    # Case F5, for a loss that is a mean and for one that is a sum.
    def loss_fn(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(found, wanted, reduction=reduction)

    found = []
    for ranks in (1, 4):
        text = "param p = 1\nranks p\nstages 4\nmicrobatches 4\n" + (
            "rank r { for i in 0:4 { for s in 0:4 { F[i]@s } for s in 3:-1:-1 { B[i]@s } } }"
            if ranks == 1
            else "rank r { F[0:4] B[0:4] }"
        )
        stages = mixed(4)
        with piper.Pipeline(stages, written(text, p=ranks), loss_fn=loss_fn) as pipeline:
            pipeline.step(*mixed_batch(8, 3))
            found.append(snapshot(pipeline.gradients()))
    assert_close(found[1], found[0], EXACT)
    assert any(value.abs().max() > 1e-3 for value in found[0][0].values())


def test_what_is_handed_out_is_a_copy() -> None:
    stages = mixed(2)
    schedule = piper.load("1f1b", p=2, m=4)
    with piper.Pipeline(stages, schedule, loss_fn=MSE, optimizer=sgd) as pipeline:
        pipeline.step(*mixed_batch(8, 0))
        state = pipeline.state_dict()
        before = snapshot(state)
        pipeline.step(*mixed_batch(8, 1))
        assert_close(state, before, 0.0)
        with pytest.raises(AssertionError):
            assert_close(pipeline.state_dict(), before, EXACT)


def test_gradients_handed_out_are_copies() -> None:
    schedule = written("ranks 2\nmicrobatches 4\nrank r { F[0:4] B[0:4] }")
    with piper.Pipeline(mixed(2), schedule, loss_fn=MSE) as pipeline:
        pipeline.step(*mixed_batch(8, 0))
        gradients = pipeline.gradients()
        before = snapshot(gradients)
        pipeline.step(*mixed_batch(8, 1))
        assert_close(gradients, before, 0.0)


def test_the_operations_are_timed() -> None:
    schedule = piper.load("1f1b", p=2, m=4)
    with piper.Pipeline(mixed(2), schedule, loss_fn=MSE, optimizer=sgd) as pipeline:
        pipeline.step(*mixed_batch(8, 0))
        report = pipeline.last
    for row in report.operations:
        assert all(one.start <= one.end for one in row)
        assert all(one.end <= other.start for one, other in pairwise(row))
    busy = max(sum(one.end - one.start for one in row) for row in report.operations)
    assert 0 < busy <= report.makespan <= report.seconds


@pytest.mark.parametrize("m", [4, 8, 32])
@pytest.mark.parametrize(("name", "peaks"), [("1f1b", [4, 3, 2, 1]), ("gpipe", None)])
def test_a_rank_holds_as_many_outputs_as_are_in_flight(name: str, peaks: list[int] | None, m: int) -> None:
    # Cases D3, D6, D8: 1F1B does not grow with m, and nothing stays after the step.
    alive: dict[int, list[weakref.ref[torch.Tensor]]] = {stage: [] for stage in range(4)}
    highest = [0] * 4

    class Counted(Dense):
        def __init__(self, stage: int) -> None:
            super().__init__()
            self.stage = stage

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            result = torch.tanh(self.linear(hidden))
            alive[self.stage] = [ref for ref in alive[self.stage] if ref() is not None] + [weakref.ref(result)]
            highest[self.stage] = max(highest[self.stage], len(alive[self.stage]))
            return result

    x, y = torch.randn(2, m, WIDTH)
    stages = [Counted(stage) for stage in range(4)]
    with piper.Pipeline(stages, piper.load(name, p=4, m=m), loss_fn=MSE, optimizer=sgd) as pipeline:
        for _ in range(2):
            pipeline.step(x, y)
            assert not any(ref() is not None for refs in alive.values() for ref in refs)
    assert highest == (peaks or [m] * 4)
