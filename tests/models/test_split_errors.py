"""What cannot be cut is refused with the reason, the place and a way out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_zoo import Reader, chained, words
from torch import nn

import piper_dsl as piper
from piper_dsl.diagnostics import Diagnostic

X = torch.randn(4, 3)


class Two(nn.Module):
    """Two layers; what happens between them differs."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.idle = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.two(self.between(self.one(x)))

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x


class FollowsData(Two):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x
        return -x


class OneSize(Two):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(4, 3)


class ChangesInput(Two):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x += 1
        return self.two(self.one(x))


class ChangesAcross(Two):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.one(x)
        second = self.two(first)
        first.add_(second)
        return first


class SharesBuffer(Two):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.two(self.one(x) + self.calls) + self.calls


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return 2 * gradient


class OwnBackward(Two):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return _Doubled.apply(x)


class CallsNumpy(Two):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return x + float(x.detach().numpy().sum())


class ReturnsNumber(Two):
    def forward(self, x: torch.Tensor) -> Any:
        x = self.two(self.one(x))
        return x, x.shape[0]


class MarkedInTraining(Two):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            piper.stage_boundary()
        return x


CASES: dict[str, tuple[nn.Module, Any, dict[str, Any], str]] = {
    # name: (model, split, options, what the message says)
    "no such layer": (Two(), ["tow"], {}, "the model has no layer `tow`"),
    "named twice": (Two(), ["two", "two"], {}, "the layer `two` is named twice"),
    "not called": (Two(), ["idle"], {}, "the layer `idle` has no operation of its own in forward"),
    "first layer": (Two(), ["one"], {}, "nothing to compute before the layer `one`: stage 0 would be empty"),
    "out of order": (
        nn.Sequential(*(nn.Linear(3, 3) for _ in range(3))),
        ["2", "1"],
        {},
        "forward calls the layer `1` before the layer `2`",
    ),
    "names for another count": (Two(), ["two"], {"stages": 3}, "1 names make 2 stages, but 3 are asked for"),
    "more stages than layers": (Two(), "time", {"stages": 3}, "cannot be cut into 3 stages: it has 2 layers"),
    "more stages than parameters": (Two(), "parameters", {"stages": 9}, "it has 2 layers to make them of"),
    "how many": (Two(), "time", {}, 'split="time" needs to know how many stages'),
    "unknown split": (Two(), "halves", {}, "there is no split `halves`"),
    "no marks": (Two(), "marks", {}, "forward passes no mark"),
    "marks in one mode": (MarkedInTraining(), "marks", {}, "1 marks in training mode and 0 in evaluation mode"),
    "follows data": (FollowsData(), ["two"], {}, "control flow depends on the values of its tensors"),
    "one size": (OneSize(), ["two"], {}, "does not fit microbatches of every size, only some like the example's 4"),
    "changes input": (ChangesInput(), ["two"], {}, "forward changes its input `x` in place"),
    "changes across": (ChangesAcross(), ["two"], {}, "forward changes `linear` in place"),
    "shares buffer": (SharesBuffer(), ["two"], {}, "forward changes the buffer `calls` in place"),
    "own backward": (OwnBackward(), ["two"], {}, "the stages do not compute what the model does"),
    "numpy": (CallsNumpy(), ["two"], {}, "torch.export cannot trace the model"),
    "a number": (ReturnsNumber(), ["two"], {}, "the model returns a number (SymInt); stages return tensors"),
}


def refused(model: Any, split: Any, example: Any = X, **options: Any) -> Diagnostic:
    """The one finding of a model that cannot be cut."""
    with pytest.raises(piper.PipeError) as error:
        piper.split_model(model, example, split, **options)
    (finding,) = error.value.diagnostics
    assert finding.code == "P704"
    return finding


@pytest.mark.parametrize(("model", "split", "options", "words"), CASES.values(), ids=CASES)
def test_the_reason_is_said(model: nn.Module, split: Any, options: dict[str, Any], words: str) -> None:
    finding = refused(model, split, **options)
    assert words in finding.message
    assert finding.help


def test_a_name_that_is_nearly_right_is_offered() -> None:
    assert refused(Two(), ["tow"]).help == "did you mean `two`?"


@pytest.mark.parametrize(
    ("model", "code"),
    [
        (OneSize(), "return x.view(4, 3)"),
        (FollowsData(), "if x.sum() > 0:"),
        (ChangesInput(), "x += 1"),
        (ChangesAcross(), "first.add_(second)"),
    ],
)
def test_the_place_in_forward_is_shown(model: nn.Module, code: str) -> None:
    place = refused(model, ["two"]).notes[-1]
    assert place.endswith(code)
    assert "test_split_errors.py" in place


def test_control_flow_that_follows_data_can_be_cut_by_hand() -> None:
    assert "pass a list of stage modules" in str(refused(FollowsData(), ["two"]).help)


EXAMPLES = {
    "no tensor": (),
    "no batch": torch.tensor(1.0),
    "two batches": (torch.zeros(2, 3), torch.zeros(4, 3)),
}


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_an_example_is_one_microbatch(example: Any) -> None:
    assert "the example inputs must be one microbatch" in refused(Two(), ["two"], example).message


def test_an_example_that_the_model_does_not_take() -> None:
    finding = refused(Two(), ["two"], torch.zeros(4, 7))
    assert "the model does not run on the example" in finding.message
    assert "4x7" in finding.message


def test_what_is_not_a_module() -> None:
    assert "not a function" in refused(lambda x: x, ["two"]).message


def test_a_batch_of_fixed_size_is_said_to_be_fixed_and_stays_so() -> None:
    assert "pass `fixed_batch=True`" in str(refused(OneSize(), ["two"]).help)
    model = OneSize()
    made = piper.split_model(model, X, ["two"], fixed_batch=True)
    assert torch.equal(chained(made, X)[0], model(X))
    with pytest.raises(ValueError, match=r"of shape \(4, 3\) and torch.float32, like the example; .* \(5, 3\)"):
        chained(made, torch.randn(5, 3))


@pytest.mark.parametrize("inputs", [words(3)[:, :4], words(3).float(), words(3)[0]])
def test_only_the_batch_is_free(inputs: torch.Tensor) -> None:
    # A graph has the other sizes written into it: positions for 5 words would serve 4 wrongly, without an error.
    made = piper.split_model(Reader(blocks=2), words(3), ["blocks.1"])
    with pytest.raises(ValueError, match=r"an input `words` of shape \(any, 5\) and torch.int64"):
        chained(made, inputs)


def test_stages_in_different_modes_are_found_where_it_matters() -> None:
    class Mode(Two):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.one(x)
            return self.two(hidden) + (x if self.training else hidden)

    first, second = piper.split_model(Mode(), X, ["two"])
    second.eval()
    with pytest.raises(ValueError, match="takes 1 tensors, not 2; are all stages in one mode"):
        chained([first, second], X)


def test_a_value_that_is_changed_in_place_can_be_cut_elsewhere() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 3), nn.Linear(3, 3))
    assert "in place" in refused(model, ["1"]).message
    assert len(piper.split_model(model, X, "parameters", stages=3)) == 3  # never between the first two
    assert "it has 3 layers" in refused(model, "parameters", stages=4).message


class Inner(Two):
    """A buffer that is read, then updated in another stage without gradients: wrong from the second step on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.two(self.one(x) + self.mean)
        with torch.no_grad():
            self.mean.mul_(0.9).add_(result.mean(dim=0))
        return result


class ReadThenChanged(Two):
    """A number that is read before what it is read from changes, and needed in another stage."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.one(x)
        first = hidden[0, 0].item()
        return self.two(torch.tanh(hidden.add_(1.0))) * first


class ViewedBuffer(Two):
    """A buffer that another stage changes through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        view = self.mean.view(1, 3)
        hidden = self.one(x + view)
        view.add_(1.0)
        return self.two(hidden)


STATEFUL = {
    "inside a region without gradients": (Inner(), "forward changes the buffer `mean` in place"),
    "a number read before": (ReadThenChanged(), "needs `item` of a stage before it, which is no tensor"),
}


@pytest.mark.parametrize(("model", "words"), STATEFUL.values(), ids=STATEFUL)
def test_state_that_two_stages_would_share_is_refused(model: nn.Module, words: str) -> None:
    assert words in refused(model, ["two"]).message


def test_a_buffer_that_changes_through_a_view_stays_in_one_stage() -> None:
    made = piper.split_model(ViewedBuffer(), X, ["two"])
    model = ViewedBuffer()
    for stage in made:
        stage.load_state_dict(model.state_dict(), strict=False)
    for _ in range(3):
        assert torch.equal(chained(made, X)[0], model(X))


def test_random_numbers_without_gradients_are_drawn_once() -> None:
    class Noisy(Two):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                noise = torch.rand(3) + torch.arange(3)
            return self.two(self.one(x) * noise) * noise

    model = Noisy()
    made = piper.split_model(model, X, ["two"])
    torch.manual_seed(5)
    wanted = model(X)
    torch.manual_seed(5)
    assert torch.equal(chained(made, X)[0], wanted)
