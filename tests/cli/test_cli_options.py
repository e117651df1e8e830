"""Options in groups: typer sees the options, a command one value."""

from __future__ import annotations

import inspect

import pytest
import typer

from piper_dsl.cli.options import Limits, Sending, Timing, grouped
from piper_dsl.simulate import Costs

SEEN: list[tuple[str, Timing, bool]] = []


@grouped
def command(name: str, *, timing: Timing, loud: bool = False) -> None:
    """Remembers what it was given."""
    SEEN.append((name, timing, loud))


def test_a_command_has_the_options_of_its_groups_in_their_place() -> None:
    parameters = inspect.signature(command).parameters
    assert list(parameters) == ["name", "cost", "costs", "latency", "loud"]
    assert parameters["latency"].default is None
    assert command.__doc__ == "Remembers what it was given."


def test_a_command_is_given_groups_as_values() -> None:
    command(name="a", cost=["F=3", "F&B=4"], costs=None, latency=0.5, loud=True)
    name, timing, loud = SEEN.pop()
    assert (name, timing, loud) == ("a", Timing(["F=3", "F&B=4"], None, 0.5), True)
    assert timing.given
    assert timing.chosen() == Costs(F=3, latency=0.5, **{"F&B": 4})
    assert timing.chosen(Costs(F=1, B=7)) == Costs(F=3, B=7, latency=0.5, **{"F&B": 4})
    assert not Timing().given
    assert Timing().chosen() == Costs()


def test_what_is_none_is_a_usage_error() -> None:
    for transport, placement in (("pigeon", "auto"), ("buffered", "nowhere")):
        with pytest.raises(typer.BadParameter, match="there is no"):
            Sending(transport, placement)
    with pytest.raises(typer.BadParameter, match="write --memory-limit 8"):
        _ = Limits("much").memory
    assert Limits("8,6").memory == [8.0, 6.0]
