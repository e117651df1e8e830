"""What is not a plain chain on ray-program: ties, joins, written transfers, shapes that change; and any schedule."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import HealthCheck, given, note, settings
from runtime_cases import Case, stepped_cases
from runtime_models import WIDTH, Dense, Moody, first_and_last, mixed, mixed_batch, sgd
from runtime_reference import (
    EXACT,
    assert_close,
    close,
    gradients_of,
    only,
    operations,
    rows,
    trained_whole,
    whole_gradients,
    written,
)
from test_local_graphs import TWO_TOWERS, _Tower, _Two
from torch import nn

import piper_dsl as piper
from piper_dsl.targets.buffers import Buffers

pytestmark = pytest.mark.usefixtures("warm")

MSE = nn.functional.mse_loss
TARGETS = ["local", "ray-program"]


def test_a_buffer_is_used_again_when_nobody_looks_into_it() -> None:
    buffers = Buffers("cpu")
    first = buffers.take(64)
    place, view = first.data_ptr(), first[:16].view(torch.float32)
    del first
    assert buffers.take(64).data_ptr() != place
    view.fill_(1.0)
    other = buffers.take(64)
    other.zero_()
    assert view.tolist() == [1.0] * 4
    del view
    assert place in {buffers.take(64).data_ptr(), buffers.take(64).data_ptr()}


def test_a_buffer_that_somebody_keeps_does_not_keep_others_from_being_used_again() -> None:
    buffers = Buffers("cpu")
    kept = buffers.take(64)
    assert kept.data_ptr() not in (places := {buffers.take(64).data_ptr() for _ in range(100)})
    assert len(places) <= 2


TIED = {
    "across ranks": "ranks 3\nmicrobatches 2\ntie 0, 2\nrank r { F[0:2] B[0:2] OPT }",
    "on one rank": "ranks 2\nstages 3\nmicrobatches 2\ntie 0, 2\n"
    "rank 0: 0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1 0OPT 2OPT\nrank 1: 1F0 1F1 1B0 1B1 1OPT",
    "copies too": "ranks 3\nmicrobatches 2\ntie 0, 2\nplace s, i on s if i == 0 else 2 - s\n"
    "rank 0: 0F0 2F1 2B1 0B0 0OPT 2OPT\nrank 1: 1F0 1F1 1B1 1B0 1OPT\nrank 2: 0F1 2F0 2B0 0B1 0OPT 2OPT",
}


def _tied() -> list[nn.Module]:
    """Stages 0 and 2 share a weight; their biases are their own."""
    torch.manual_seed(0)
    stages = [Dense().double() for _ in range(3)]
    stages[2].linear.weight = stages[0].linear.weight
    return stages


@pytest.mark.parametrize(
    ("target", "text"),
    [*((target, text) for text in TIED.values() for target in TARGETS), ("ray-dag", TIED["copies too"])],
    ids=[*(f"{name}-{target}" for name in TIED for target in TARGETS), "copies too-ray-dag"],
)
def test_tied_stages_make_the_steps_of_one_parameter(target: str, text: str) -> None:
    batches = [tuple(torch.randn(2, 4, WIDTH, dtype=torch.float64)) for _ in range(3)]
    losses, state = trained_whole(_tied(), MSE, sgd, batches)
    arguments = {"loss_fn": first_and_last, "optimizer": sgd, "target": target, "timeout": 60.0}
    with piper.Pipeline(_tied(), written(text), **arguments) as pipeline:
        assert [pipeline.step(*batch) for batch in batches] == close(losses, EXACT)
        assert_close(pipeline.state_dict(), state, EXACT)


@pytest.mark.parametrize("target", TARGETS)
def test_gradients_of_tied_stages_are_summed(target: str) -> None:
    batch = tuple(torch.randn(2, 4, WIDTH, dtype=torch.float64))
    _, gradients = whole_gradients(_tied(), MSE, [batch])
    for text in TIED.values():
        schedule = written(text.replace("0OPT", "").replace("1OPT", "").replace("2OPT", "").replace("OPT", ""))
        with piper.Pipeline(_tied(), schedule, loss_fn=first_and_last, target=target, timeout=60.0) as pipeline:
            pipeline.step(*batch)
            assert_close(pipeline.gradients(), gradients, EXACT)


def test_what_is_tied_and_not_shared_or_shared_and_not_tied_is_refused() -> None:
    tied, plain = written(TIED["across ranks"]), written(TIED["across ranks"].replace("tie 0, 2\n", ""))
    with pytest.raises(piper.PipeError) as error:
        piper.Pipeline([Dense() for _ in range(3)], tied, loss_fn=MSE, optimizer=sgd)
    assert only(error).message == "stages 0 and 2 are tied, but their modules share no parameter"
    with pytest.raises(piper.PipeError) as error:
        piper.Pipeline(_tied(), plain, loss_fn=MSE, optimizer=sgd)
    assert only(error).message == "stages 0 and 2 share a parameter, which each would step by itself"
    assert only(error).help == "write `tie 0, 2` in the schedule, or give each its own"


def test_two_towers_join_on_ray_program() -> None:
    torch.manual_seed(0)
    stages = [s.double() for s in (_Tower(), _Tower(), _Two(), nn.Linear(WIDTH, WIDTH))]
    left, right, both, head = copy.deepcopy(stages)
    images, words, targets = torch.randn(3, 6, WIDTH, dtype=torch.float64)
    loss = MSE(head(both(*left(images), *right(words))), targets)
    loss.backward()
    schedule = written(TWO_TOWERS.replace("BACKWARD", "I[0:3] W[0:3]"))
    with piper.Pipeline(stages, schedule, loss_fn=MSE, target="ray-program", timeout=60.0) as pipeline:
        assert pipeline.step({0: images, 1: words}, targets) == close(loss.item(), EXACT)
        assert_close(pipeline.gradients(), gradients_of([left, right, both, head]), EXACT)
        assert operations(pipeline) == rows(schedule)


WRITTEN = """
ranks 2
microbatches 3
rank 0: F0 SEND_F0 F1 SEND_F1 F2 SEND_F2 RECV_B2 B2 RECV_B1 B1 RECV_B0 B0
rank 1: RECV_F2 F2 B2 SEND_B2 RECV_F1 F1 B1 SEND_B1 RECV_F0 F0 B0 SEND_B0
"""


def test_written_transfers_that_arrive_in_another_order_find_their_operations() -> None:
    stages = mixed(2)
    batch = mixed_batch(6, 0)
    losses, gradients = whole_gradients(stages, MSE, [batch])
    with piper.Pipeline(stages, written(WRITTEN), loss_fn=MSE, target="ray-program", timeout=60.0) as pipeline:
        assert pipeline.step(*batch) == close(losses[0], EXACT)
        assert_close(pipeline.gradients(), gradients, EXACT)
        assert pipeline.step(*batch) == close(losses[0], EXACT)


def test_data_of_other_shapes_and_back() -> None:
    stages, schedule = mixed(2), piper.load("1f1b", p=2, m=2)
    batches = [mixed_batch(size, size) for size in (4, 8, 4, 2, 8)]
    losses, state = trained_whole(stages, MSE, sgd, batches)
    arguments = {"loss_fn": MSE, "optimizer": sgd, "target": "ray-program", "timeout": 60.0}
    with piper.Pipeline(stages, schedule, **arguments) as pipeline:
        assert [pipeline.step(*batch) for batch in batches] == close(losses, EXACT)
        assert_close(pipeline.state_dict(), state, EXACT)


@pytest.mark.parametrize("target", TARGETS)
def test_a_result_may_have_another_shape_than_before(target: str) -> None:
    x = torch.rand(4, WIDTH)
    large = x * torch.tensor([1.0, 1.0, 99.0, 99.0])[:, None]
    arguments = {"loss_fn": lambda found, _: found.mean(), "optimizer": sgd, "target": target, "timeout": 60.0}
    with piper.Pipeline([Moody(), nn.Identity()], piper.load("1f1b", p=2, m=2), **arguments) as pipeline:
        found = [pipeline.step(batch, x) for batch in (x, large, x)]
    assert found == [
        pytest.approx((x[:2].mean() + batch[2:, : WIDTH - cut].mean()) / 2)
        for batch, cut in zip((x, large, x), (0, 1, 0), strict=True)
    ]


@given(stepped_cases(most_ranks=2))
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_schedule_in_replicas_steps_as_one_process(case: Case) -> None:
    note(case.text)
    schedule, stages = written(case.text), case.stages()
    size = 2 * schedule.microbatches * case.samples
    batches = [torch.randn(2, size, WIDTH, dtype=torch.float64).unbind() for _ in range(2)]
    losses, state = trained_whole(stages, first_and_last, sgd, batches)
    arguments = {"loss_fn": first_and_last, "optimizer": sgd, "target": "ray-program", "timeout": 60.0}
    with piper.Pipeline(stages, schedule, replicas=2, **arguments) as pipeline:
        assert [pipeline.step(*batch) for batch in batches] == close(losses, EXACT)
        assert_close(pipeline.state_dict(), state, EXACT)
        assert operations(pipeline) == rows(pipeline.schedule)
