"""Options that several commands have, each declared once, in groups that a command takes as one value.

A command names a group in its signature, as in ``timing: Timing``, and :func:`grouped` shows typer the options of the
group in its place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from math import isnan
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ..ir.operations import Kind
from ..plan import PLACEMENTS, TRANSPORTS, Transport

if TYPE_CHECKING:
    from ..simulate import Costs

__all__ = ["Limits", "Profile", "Released", "Sending", "Timing", "Transported", "grouped", "released"]


@dataclass(frozen=True)
class Profile:
    """What operations take: a file, and single costs over it."""

    cost: Annotated[
        list[str] | None,
        typer.Option(
            "--cost",
            metavar="KIND=X",
            help="The duration of a kind or slot, as in F=1 or F&B=2.5; or overhead=X, bandwidth=X. Repeatable.",
        ),
    ] = None
    costs: Annotated[str | None, typer.Option("--costs", metavar="FILE", help="A profile of costs, TOML or JSON.")] = (
        None
    )

    @property
    def given(self) -> bool:
        """Whether anything was said of costs."""
        return bool(self.cost or self.costs)

    def chosen(self, base: Costs | None = None) -> Costs:
        """The costs of ``--costs FILE``, else ``base``, with what single options say in place of theirs.

        Raises PipeError for a profile that cannot be used, a usage error for costs that are none.
        """
        from ..ir.costs import Costs
        from ..ir.profile import read_profile

        base = read_profile(self.costs) if self.costs else base or Costs()
        try:
            return base.changed(**self._said())
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    def _said(self) -> dict[str, Any]:
        """Single costs, as arguments of :class:`Costs`."""
        return dict(map(_cost, self.cost or ()))


@dataclass(frozen=True)
class Timing(Profile):
    """What operations and messages take."""

    latency: Annotated[
        float | None, typer.Option("--latency", min=0.0, help="What passes until a result arrives on another rank.")
    ] = None

    @property
    def given(self) -> bool:
        return super().given or self.latency is not None

    def _said(self) -> dict[str, Any]:
        latency = {} if self.latency is None else {"latency": self.latency}
        return {**super()._said(), **latency}


@dataclass(frozen=True)
class Transported:
    """How messages wait. A usage error where there is no such transport."""

    transport: Annotated[
        str, typer.Option("--transport", metavar="NAME", help=f"How messages wait: {', '.join(TRANSPORTS)}.")
    ] = "buffered"

    def __post_init__(self) -> None:
        try:
            Transport.parse(self.transport)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None


@dataclass(frozen=True)
class Sending(Transported):
    """How messages wait, and where transfers go. A usage error where there is no such placement."""

    placement: Annotated[
        str,
        typer.Option("--placement", metavar="NAME", help=f"Where transfers go: auto, {', '.join(PLACEMENTS)}."),
    ] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.placement not in ("auto", *PLACEMENTS):
            message = f"there is no placement `{self.placement}`; there are auto, {', '.join(PLACEMENTS)}"
            raise typer.BadParameter(message)


@dataclass(frozen=True)
class Limits:
    """What a rank may hold. A usage error for what is no number."""

    memory_limit: Annotated[
        str | None,
        typer.Option(
            "--memory-limit",
            metavar="X",
            help="What a rank may hold: one number, or one per rank. In activations, or as the profile counts.",
        ),
    ] = None

    @property
    def memory(self) -> float | list[float] | None:
        """The limit: `8`, or `8,6,4,2`."""
        text = self.memory_limit
        if text is None:
            return None
        try:
            numbers = [float(part) for part in text.split(",")]
            if any(map(isnan, numbers)):
                raise ValueError
        except ValueError:
            raise typer.BadParameter(f"{text!r}: write --memory-limit 8, or one number per rank: 8,6,4,2") from None
        return numbers[0] if len(numbers) == 1 else numbers


Released = Annotated[
    float | None,
    typer.Option("--released-at-input", min=0.0, max=1.0, help="Part of an activation freed at I, not W."),
]


def released(costs: Costs, part: float | None) -> Costs:
    """The costs with a part of every activation that a split backward frees at I, where one is given."""
    try:
        return costs if part is None else costs.changed(memory=replace(costs.memory, released_at_input=part))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _cost(option: str) -> tuple[str, float]:
    """One ``--cost NAME=x``: a kind, kinds that overlap, the overhead of every operation, or the bandwidth."""
    name, _, value = option.partition("=")
    try:
        if name.strip() in ("overhead", "bandwidth"):
            return name.strip(), float(value)
        return "&".join(Kind[part.strip()].name for part in name.split("&")), float(value)
    except KeyError:
        kinds = ", ".join(Kind.__members__)
        message = f"{option!r}: no kind of operation is called {name.strip()}; there are {kinds}, overhead, bandwidth"
        raise typer.BadParameter(message) from None
    except ValueError:
        raise typer.BadParameter(f"{option!r}: write --cost KIND=number, as in --cost F=1.5") from None


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of every dataclass in its signature as options of their own."""
    # As written: Python 3.10's get_type_hints hides what is annotated where the default is None.
    hints = inspect.get_annotations(command, eval_str=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

    @wraps(command)
    def run(**given: Any) -> None:
        own = ((name, group, [field.name for field in fields(group)]) for name, group in groups.items())
        values = {name: group(**{field: given.pop(field) for field in names}) for name, group, names in own}
        command(**given, **values)

    found = list(_parameters(command, hints))
    run.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in found}
    return run


def _parameters(command: Callable[..., None], hints: dict[str, Any]) -> Iterable[inspect.Parameter]:
    """By keyword only, so that what needs no value may stand before what does."""
    for name, parameter in inspect.signature(command).parameters.items():
        if not is_dataclass(hints[name]):
            yield parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            continue
        own = get_type_hints(hints[name], include_extras=True)
        for field in fields(hints[name]):
            yield inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=own[field.name]
            )
