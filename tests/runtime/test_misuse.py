"""What a user gets wrong before anything runs: one clear finding each, on every target."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from runtime_models import WIDTH, Dense, first_and_last, sgd
from runtime_reference import only, written
from torch import nn

import piper_dsl as piper

MSE = nn.functional.mse_loss
TARGETS = ["local", "ray-dag", "ray-program"]

pytestmark = pytest.mark.usefixtures("ray_instance")


def _pipeline(target: str = "local", **changes: Any) -> piper.Pipeline:
    arguments = {
        "stages": [nn.Linear(WIDTH, WIDTH) for _ in range(2)],
        "schedule": piper.load("1f1b", p=2, m=4),
        "loss_fn": MSE,
        "optimizer": sgd,
        "target": target,
        **changes,
    }
    return piper.Pipeline(arguments.pop("stages"), arguments.pop("schedule"), **arguments)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_wrong_number_of_stages(target: str, count: int) -> None:
    with pytest.raises(piper.PipeError) as error:
        _pipeline(target, stages=[nn.Linear(WIDTH, WIDTH) for _ in range(count)])
    finding = only(error)
    assert finding.code == "P701"
    assert finding.message == f"the schedule `1F1B` has 2 stages, the model has {count}"
    assert finding.help == "cut the model into 2 stages"


@pytest.mark.parametrize("target", TARGETS)
def test_a_stage_that_is_no_module(target: str) -> None:
    with pytest.raises(piper.PipeError) as error:
        _pipeline(target, stages=[nn.Linear(WIDTH, WIDTH), torch.tanh])
    assert only(error).code == "P701"
    assert "stage 1" in only(error).message


def test_an_unknown_target() -> None:
    with pytest.raises(piper.PipeError) as error:
        _pipeline("ray")
    finding = only(error)
    assert (finding.code, finding.message) == ("P702", "there is no target `ray`")
    assert finding.help == "one of auto, local, ray-dag, ray-program"


def test_an_unknown_transport() -> None:
    with pytest.raises(piper.PipeError) as error:
        _pipeline("ray-dag", transport="carrier-pigeon")
    assert only(error).code == "P702"
    assert "carrier-pigeon" in only(error).message


@pytest.mark.parametrize(
    ("target", "transport", "said", "help_"),
    [
        ("ray-program", "gloo", "is for target ray-dag; target ray-program has", "one of auto, direction, pair"),
        ("local", "pair", "is for target ray-program; target local has", "one of auto"),
        (
            "ray-dag",
            "direction",
            "is for target ray-program; target ray-dag has",
            "one of auto, accelerator,",
        ),
    ],
)
def test_a_transport_of_another_target(target: str, transport: str, said: str, help_: str) -> None:
    with pytest.raises(piper.PipeError) as error:
        _pipeline(target, transport=transport)
    assert only(error).code == "P702"
    assert said in only(error).message
    assert help_ in str(only(error).help)


@pytest.mark.parametrize("timeout", [0, -1.0])
def test_a_time_out_that_is_no_time(timeout: float) -> None:
    with pytest.raises(piper.PipeError) as error:
        _pipeline("ray-dag", timeout=timeout)
    assert "timeout" in only(error).message


@pytest.mark.parametrize("target", TARGETS)
def test_a_missing_loss_and_a_missing_optimizer_are_both_told(target: str) -> None:
    with pytest.raises(piper.PipeError) as error:
        _pipeline(target, loss_fn=None, optimizer=None)
    assert [(finding.code, finding.message) for finding in error.value.diagnostics] == [
        ("P701", "a schedule with a backward needs a loss"),
        ("P701", "a schedule with OPT needs an optimizer"),
    ]


@pytest.mark.parametrize("target", TARGETS)
def test_an_optimizer_that_would_never_step_is_refused(target: str) -> None:
    with pytest.raises(piper.PipeError) as error:
        _pipeline(target, schedule=written("ranks 2\nmicrobatches 2\nrank 0: F0 F1 B0 B1\nrank 1: F0 B0 F1 B1"))
    assert only(error).message == "the schedule has backwards and no OPT: the optimizer would never step"


@pytest.mark.parametrize("target", TARGETS)
def test_a_schedule_that_does_not_check_does_not_run(target: str) -> None:
    text = "ranks 2\nmicrobatches 2\nrank 0: F0 B0 F1 B1\nrank 1: F1 F0 B0 B1"
    with pytest.raises(piper.PipeError) as error:
        _pipeline(target, schedule=written(text), optimizer=None)
    assert only(error).code == "P301"


def test_a_parameter_of_two_stages() -> None:
    # Not one process' result on any target: each stage would step it, or a copy of it, alone.
    shared = nn.Linear(WIDTH, WIDTH)
    for target in TARGETS:
        with pytest.raises(piper.PipeError) as error:
            _pipeline(target, stages=[shared, shared])
        assert only(error).code in ("P701", "P702")
        assert "stages 0 and 1" in only(error).message


BATCHES = {
    # name: (inputs, targets, what the message must say)
    "not divisible": (torch.zeros(6, WIDTH), torch.zeros(6, WIDTH), ["6", "4"]),
    "smaller than m": (torch.zeros(2, WIDTH), torch.zeros(2, WIDTH), ["2", "4"]),
    "empty": (torch.zeros(0, WIDTH), torch.zeros(0, WIDTH), ["0", "4"]),
    "second input not divisible": (
        (torch.zeros(8, WIDTH), torch.zeros(7, WIDTH)),
        torch.zeros(8, WIDTH),
        ["7", "4"],
    ),
    "targets not divisible": (torch.zeros(8, WIDTH), torch.zeros(9, WIDTH), ["9", "4", "targets"]),
    "no dimension": (torch.tensor(1.0), torch.zeros(8, WIDTH), ["inputs"]),
    "numbers": ([1.0, 2.0, 3.0, 4.0], torch.zeros(4, WIDTH), ["inputs", "float"]),
    "numpy": (torch.zeros(8, WIDTH).numpy(), torch.zeros(8, WIDTH), ["inputs", "ndarray"]),
    "sparse": (torch.eye(8).to_sparse(), torch.zeros(8, WIDTH), ["inputs", "dense", "sparse_coo"]),
    "targets without values": (torch.zeros(8, WIDTH), torch.zeros(8, WIDTH, device="meta"), ["targets", "on meta"]),
    "no tensors": ((), torch.zeros(8, WIDTH), ["inputs"]),
    "wrong stage": ({1: torch.zeros(8, WIDTH)}, torch.zeros(8, WIDTH), ["inputs", "stage 0"]),
    "a stage too many": (
        {0: torch.zeros(8, WIDTH), 1: torch.zeros(8, WIDTH)},
        torch.zeros(8, WIDTH),
        ["inputs", "stage 1"],
    ),
}


@pytest.mark.parametrize(("inputs", "targets", "words"), BATCHES.values(), ids=BATCHES)
def test_a_batch_that_does_not_fit_and_then_one_that_does(inputs: Any, targets: Any, words: list[str]) -> None:
    # Cases C8 and C9. Nothing has run, so the pipeline goes on.
    with _pipeline() as pipeline:
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(inputs, targets)
        assert only(error).code == "P703"
        assert [word for word in words if word not in only(error).message] == []
        good = torch.zeros(8, WIDTH)
        assert pipeline.step(good, good) >= 0


def test_a_batch_that_does_not_fit_offers_what_would() -> None:
    with _pipeline() as pipeline, pytest.raises(piper.PipeError) as error:
        pipeline.step(torch.zeros(6, WIDTH), torch.zeros(6, WIDTH))
    finding = only(error)
    assert finding.message == "a batch of 6 inputs cannot be cut into 4 equal microbatches"
    assert finding.help == "choose a batch that is a multiple of 4, or microbatches (m) among 1, 2, 3, 6"


def test_a_batch_is_refused_before_any_actor_starts() -> None:
    with _pipeline("ray-dag") as pipeline:
        with pytest.raises(piper.PipeError) as error:
            pipeline.step(torch.zeros(2, WIDTH), torch.zeros(2, WIDTH))
        assert only(error).code == "P703"


def test_what_data_was_computed_from_is_not_trained() -> None:
    teacher = torch.ones(WIDTH, requires_grad=True)
    x = torch.rand(8, WIDTH)
    with _pipeline() as pipeline:
        loss = pipeline.evaluate(x, x)
        assert pipeline.step(x * teacher, x * teacher) == loss
    assert teacher.grad is None


ASKED = {
    "step": lambda pipeline: pipeline.step(torch.zeros(8, WIDTH), torch.zeros(8, WIDTH)),
    "state_dict": lambda pipeline: pipeline.state_dict(),
    "gradients": lambda pipeline: pipeline.gradients(),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_a_closed_pipeline_says_so(target: str, ask: Callable[[piper.Pipeline], object]) -> None:
    pipeline = _pipeline(target)
    pipeline.close()
    pipeline.close()
    try:
        with pytest.raises(piper.PipeError) as error:
            ask(pipeline)
    finally:
        pipeline.close()
    assert only(error).code == "P712"
    assert "closed" in only(error).message


class _Locked(nn.Linear):
    """Holds what no other process, and no copy, can have."""

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.lock = threading.Lock()


def _step(pipeline: piper.Pipeline) -> None:
    with pipeline:
        pipeline.step(torch.zeros(8, WIDTH), torch.zeros(8, WIDTH))


@pytest.mark.parametrize("target", TARGETS)
def test_a_module_that_cannot_be_copied_is_named(target: str) -> None:
    with pytest.raises(piper.PipeError) as error:
        _step(_pipeline(target, stages=[nn.Linear(WIDTH, WIDTH), _Locked()]))
    assert only(error).code == "P701"
    message = "rank 1 (stages 1) cannot be sent to where it runs: cannot pickle '_thread.lock' object"
    assert only(error).message == message
    assert "locks" in only(error).help


@pytest.mark.parametrize("target", ["ray-dag", "ray-program"])
def test_a_loader_that_cannot_be_copied_is_told_of(target: str) -> None:
    lock = threading.Lock()
    with pytest.raises(piper.PipeError) as error:
        _step(_pipeline(target, loader=lambda: [lock]))
    assert only(error).code == "P701"
    assert only(error).message.endswith("cannot be sent to where it runs: cannot pickle '_thread.lock' object")
    assert only(error).help.startswith("modules, loss, optimizer and loader are copied")


def _misspelt(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, learning_rate=0.1)


@pytest.mark.parametrize("target", TARGETS)
def test_an_optimizer_that_cannot_be_made_says_why(target: str) -> None:
    with pytest.raises(piper.PipeError) as error:
        _step(_pipeline(target, optimizer=_misspelt))
    assert only(error).code == "P701"
    assert only(error).message.startswith("rank 0 could not start: TypeError: SGD.__init__() got an unexpected keyword")
    assert any("test_misuse.py" in note for note in only(error).notes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_cpus": 0}, "`num_cpus` is 0"),
        ({"num_gpus": 0.5}, "`num_gpus` is 0.5"),
        ({"transport": "pair", "target": "ray-program"}, "2 ranks need 2 GPUs, one each; Ray has 0 free of 0"),
        (
            {"num_gpus": 1, "transport": "gloo", "target": "ray-dag"},
            "transport `gloo` does not move tensors of ranks with 1 GPUs",
        ),
        ({"strategy": "heap"}, "there is no strategy `heap`"),
        ({"num_cpus": 5, "target": "ray-program"}, "2 ranks need 10 CPUs, 5 each; Ray has "),
        ({"strategy": "strict-spread", "target": "ray-dag"}, "2 ranks with 1 CPU each find no place on the nodes"),
    ],
)
def test_resources_that_nobody_has_are_refused_soon(changes: dict[str, Any], said: str) -> None:
    started = time.monotonic()
    with pytest.raises(piper.PipeError) as error:
        _pipeline(**changes)
    assert said in only(error).message
    assert time.monotonic() - started < 10


JOIN = "ranks 4\nmicrobatches 2\nedge 0 -> 2\nedge 1 -> 2\nedge 2 -> 3\nrank r { F[0:2] B[0:2] OPT }"


def test_a_graph_that_accelerators_cannot_carry_is_refused_at_once(ray_instance: None) -> None:
    with pytest.raises(piper.PipeError) as error:
        _pipeline(
            "ray-dag",
            stages=[Dense() for _ in range(4)],
            schedule=written(JOIN),
            loss_fn=first_and_last,
            transport="gloo",
        )
    finding = only(error)
    assert finding.code == "P702"
    assert "more than one message" in finding.message
    assert finding.help == "use transport `shared-memory`, or target `ray-program` or `local`"


def test_one_tensor_for_two_first_stages_is_refused() -> None:
    x = torch.zeros(4, WIDTH)
    stages = [Dense() for _ in range(4)]
    with _pipeline(stages=stages, schedule=written(JOIN), loss_fn=first_and_last) as pipeline:
        for inputs, words in ((x, "stages 0, 1"), ({0: x}, "no inputs for stage 1")):
            with pytest.raises(piper.PipeError) as error:
                pipeline.step(inputs, x)
            assert only(error).code == "P703"
            assert words in only(error).message
