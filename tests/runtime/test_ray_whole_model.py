"""A whole model on Ray: its stages need nothing of the code it came from."""

from __future__ import annotations

import copy

import pytest
import torch
from runtime_models import WIDTH, sgd
from runtime_reference import EXACT
from torch import nn

import piper_dsl as piper


@pytest.mark.usefixtures("ray_instance")
def test_a_model_that_the_actors_cannot_import_is_cut_and_trained() -> None:
    class Skipping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            start = x
            for layer in self.layers:
                x = torch.tanh(layer(x)) + start
            return x

    torch.manual_seed(0)
    model = Skipping().double()
    x, y = torch.randn(2, 8, WIDTH, dtype=torch.float64)
    alone = copy.deepcopy(model)
    nn.functional.mse_loss(alone(x), y).backward()
    sgd(list(alone.parameters())).step()
    with piper.Pipeline(
        model,
        piper.load("interleaved_1f1b", p=2, m=4),
        split=["layers.1", "layers.2", "layers.3"],
        example_inputs=x[:2],
        loss_fn=nn.functional.mse_loss,
        optimizer=sgd,
        target="ray-dag",
    ) as pipeline:
        pipeline.step(x, y)
        found = {name: value for stage in pipeline.state_dict().values() for name, value in stage.items()}
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(found[name], value, rtol=EXACT, atol=EXACT)
