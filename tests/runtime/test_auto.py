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


@pytest.mark.parametrize(("address", "cpus"), [("10.0.0.1:6379", None), ("auto", None), ("local", 1), ("", 1)])
def test_a_cluster_that_the_environment_names_is_used_and_no_other(
    address: str, cpus: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(choice.os, "sched_getaffinity", lambda process: {0}, raising=False)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr(choice.torch.cuda, "device_count", lambda: 0)
    assert choice.chosen_target(2) == ("ray-program" if cpus is None else "local")


def test_a_ray_that_runs_counts_more_than_one_that_is_named(
    ray_instance: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert choice.chosen_target(9) == "local"


def test_resources_of_ray_where_it_runs(ray_instance: None) -> None:
    assert choice.chosen_target(8) == "ray-program"
    assert choice.chosen_target(9) == "local"
