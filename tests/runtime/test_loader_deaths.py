"""A rank that dies while it draws a batch by itself: fresh processes, which are not shared with other tests."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from runtime_reference import assert_close
from test_loader import Steps, fed, trained_by


@dataclass(frozen=True)
class Once:
    """Ends the process that draws a step, the first time."""

    mark: Path
    step: int

    def __call__(self, step: int) -> None:
        if step == self.step and not self.mark.exists():
            self.mark.touch()
            os._exit(1)


@pytest.mark.usefixtures("ray_instance")
@pytest.mark.parametrize("target", ["ray-dag", "ray-program"])
def test_a_rank_that_dies_while_it_draws_is_replaced(target: str, tmp_path: Path) -> None:
    losses, weights = fed(5)
    loader = Steps(tmp_path / "notes", 5, Once(tmp_path / "mark", 4))
    arguments = {"checkpoints": tmp_path / "saved", "checkpoint_every": 2, "max_restarts": 1}
    with trained_by(target, loader=loader, **arguments) as pipeline:
        assert list(pipeline.train_loaded(steps_per_call=1)) == losses
        assert_close(pipeline.state_dict(), weights, 0.0)
    assert (tmp_path / "mark").exists()
