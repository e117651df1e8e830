"""One Ray instance for all tests of the runtime."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ray
from runtime_processes import rank_processes
from runtime_warm import WarmActors, warm_ranks


@pytest.fixture(scope="session")
def ray_instance() -> Iterator[None]:
    """Eight CPUs and no GPU, whatever the machine has: ranks of tests mostly wait."""
    with pytest.MonkeyPatch.context() as patch:
        # Actors import the stages of these tests by name.
        path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
        patch.setenv("PYTHONPATH", path)
        options = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        # A cluster that runs beside is not to be joined.
        ray.init(address="local", num_cpus=8, num_gpus=0, **options)
        yield
        ray.shutdown()


@pytest.fixture(scope="session")
def warm_actors(ray_instance: None) -> Iterator[WarmActors]:
    """Four actors."""
    actors = WarmActors(4)
    yield actors
    actors.end()


@pytest.fixture(scope="module")
def warm(warm_actors: WarmActors) -> Iterator[None]:
    """Pipelines of the module on Ray run on actors that are there already, one after the other."""
    with warm_ranks(warm_actors):
        yield


@pytest.fixture
def own_ranks(ray_instance: None) -> Callable[[], set[int]]:
    """The processes that hold ranks now and did not when the test began."""
    before = rank_processes()
    return lambda: rank_processes() - before
