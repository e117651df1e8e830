"""Where a model is cut, and that the stages are the model."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from model_zoo import Reader, chained, words
from torch import nn

import piper_dsl as piper

WAYS = {
    # name: (split, stages)
    "names": (["blocks.1", "blocks.3", "head"], None),
    "marks": ("marks", None),
    "time": ("time", 3),
    "parameters": ("parameters", 5),
    "uncut": ([], None),
}


@pytest.fixture(scope="module")
def model() -> Reader:
    torch.manual_seed(0)
    return Reader(drop=0.5)


@pytest.mark.parametrize(("split", "stages"), WAYS.values(), ids=WAYS)
def test_the_stages_are_the_model_in_both_modes_at_any_batch(
    model: Reader, split: str | list[str], stages: int | None
) -> None:
    made = piper.split_model(model, words(3), split, stages=stages)
    for size in (1, 2, 3, 8):
        for training in (True, False):
            for module in (model, *made):
                module.train(training)
            torch.manual_seed(size)
            wanted = model(words(size, seed=size))
            torch.manual_seed(size)
            found = chained(made, words(size, seed=size))
            assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def _holding(stages: list[nn.Module]) -> list[set[str]]:
    """Per stage, the layers that it has parameters of."""
    return [{".".join(name.split(".")[:2]) for name, _ in stage.named_parameters()} for stage in stages]


def test_a_stage_begins_before_each_named_layer(model: Reader) -> None:
    made = piper.split_model(model, words(2), ["blocks.1", "blocks.3.inner", "head"])
    first, second, third, fourth = _holding(made)
    assert first - {"unused.weight", "unused.bias"} == {"embed.weight", "blocks.0"}
    assert second == {"blocks.1", "blocks.2", "blocks.3"}  # its norm runs before `inner`
    assert third == {"blocks.3"}
    assert fourth - {"unused.weight", "unused.bias"} == {"head.weight"}


def test_a_stage_begins_at_each_mark(model: Reader) -> None:
    blocks = [
        {name for name in one if "blocks" in name} for one in _holding(piper.split_model(model, words(2), "marks"))
    ]
    assert blocks == [{"blocks.0"}, {"blocks.1", "blocks.2"}, {"blocks.3"}]


def test_pytorchs_own_mark_is_the_same() -> None:
    from torch.distributed.pipelining import pipe_split

    class Marked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.one(x)
            pipe_split()
            return self.two(x)

    assert _holding(piper.split_model(Marked(), torch.randn(3, 2), "marks")) == [
        {"one.weight", "one.bias"},
        {"two.weight", "two.bias"},
    ]


def test_a_checkpoint_of_the_whole_model_loads_into_the_stages(model: Reader) -> None:
    made = piper.split_model(model, words(2), ["blocks.1", "blocks.3"])
    names = [name for stage in made for name in stage.state_dict()]
    assert sorted(names) == sorted(model.state_dict())  # unused ones too, each in one stage, `passing` in none
    other = Reader()
    for stage in (stages := copy.deepcopy(made)):
        assert stage.load_state_dict(other.state_dict(), strict=False).missing_keys == []
    for module in (other, *stages):
        module.eval()
    assert torch.equal(chained(stages, words(4))[0], other(words(4))[0])


def test_the_stages_hold_the_models_own_parameters(model: Reader) -> None:
    made = piper.split_model(model, words(2), ["blocks.2"])
    assert {id(p) for stage in made for p in stage.parameters()} == {id(p) for p in model.parameters()}


def test_stages_can_be_sent_and_copied(model: Reader) -> None:
    made = piper.split_model(model, words(2), ["blocks.2"])
    wanted = chained([stage.eval() for stage in made], words(3))
    for sent in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert all(torch.equal(one, other) for one, other in zip(chained(sent, words(3)), wanted, strict=True))


@pytest.mark.parametrize(("split", "stages"), [(["2"], None), ("time", 2)], ids=["names", "time"])
def test_splitting_leaves_the_model_as_it_was(split: str | list[str], stages: int | None) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 3))
    model[1].eval()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    example = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    made = piper.split_model(model, example, split, stages=stages)
    assert [module.training for module in model] == [True, False, True, True, True]
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(stage.training for stage in made)


def test_frozen_parts_stay_frozen_while_the_rest_trains() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
    model[1].eval().requires_grad_(False)
    made = piper.split_model(model, torch.randn(4, 3), ["2"])
    x = torch.randn(5, 3)
    before = made[0].state_dict()["1.running_mean"].clone()
    assert torch.equal(chained(made, x)[0], model(x))
    assert torch.equal(made[0].state_dict()["1.running_mean"], before)
    assert [p.requires_grad for _, p in sorted(made[0].named_parameters())] == [True, True, False, False]


def test_a_training_batch_norm_updates_the_stages_own_statistics() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)).double()
    alone, made = copy.deepcopy(model), piper.split_model(model, torch.randn(4, 3, dtype=torch.float64), ["2"])
    x = torch.randn(6, 3, dtype=torch.float64)
    alone(x)
    chained(made, x)
    for name, value in alone[1].named_buffers():
        assert torch.equal(made[0].state_dict()[f"1.{name}"], value)
    assert made[0].state_dict()["1.num_batches_tracked"] == 1


def test_masks_and_positions_are_made_where_they_are_needed() -> None:
    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            time = torch.arange(x.shape[1])
            mask = (time[:, None] >= time[None, :]).to(x.dtype).expand(x.shape[0], -1, -1)
            for layer in self.layers:
                x = mask @ layer(x)
            return x

    model = Causal()
    made = piper.split_model(model, torch.randn(2, 5, 4), ["layers.1", "layers.2"])
    x = torch.randn(3, 5, 4)
    assert [len(chained(made[:count], x)) for count in (1, 2, 3)] == [1, 1, 1]
    assert torch.equal(chained(made, x)[0], model(x))


def test_a_mask_that_was_changed_in_place_travels() -> None:
    class Filled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mask = torch.ones(4)
            mask[1] = 0.0
            return self.two(self.one(x) * mask) * mask

    model = Filled()
    made = piper.split_model(model, torch.randn(2, 4), ["two"])
    x = torch.randn(3, 4)
    assert len(chained(made[:1], x)) == 2
    assert torch.equal(chained(made, x)[0], model(x))


def test_a_number_read_from_a_tensor_crosses_as_that_tensor() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            factor = x.detach().abs().max().item()
            return self.two(self.one(x)) * factor

    model = Scaled()
    made = piper.split_model(model, torch.randn(2, 4), ["two"])
    x = torch.randn(3, 4)
    assert torch.equal(chained(made, x)[0], model(x))


def test_a_layer_under_autocast_is_found() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.one(x)
            with torch.autocast("cpu", torch.bfloat16):
                x = self.two(x)
            return x.float()

    model = Mixed()
    made = piper.split_model(model, torch.randn(2, 4), ["two"])
    assert _holding(made) == [{"one.weight", "one.bias"}, {"two.weight", "two.bias"}]
    x = torch.randn(3, 4)
    assert torch.equal(chained(made, x)[0], model(x))
