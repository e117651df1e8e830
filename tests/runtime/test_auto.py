"""Target auto: what the machine is good for."""

from __future__ import annotations

import pytest

from piper_dsl.targets import choice


@pytest.mark.parametrize(
    ("ranks", "cpus", "gpus", "ray", "target"),
    [
        (4, 4, 0, True, "ray-program"),
        (4, 3, 0, True, "local"),
        (4, 2, 4, True, "ray-program"),
        (1, 64, 8, True, "local"),
        (2, 64, 8, False, "local"),
    ],
)
def test_what_is_chosen(
    ranks: int, cpus: int, gpus: int, ray: bool, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "_resources", lambda: (cpus, gpus))
    monkeypatch.setattr(choice.importlib.util, "find_spec", lambda name: object() if ray else None)
    assert choice.chosen_target(ranks) == target


def test_resources_of_ray_where_it_runs(ray_instance: None) -> None:
    assert choice.chosen_target(8) == "ray-program"
    assert choice.chosen_target(9) == "local"
