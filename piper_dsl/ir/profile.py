"""Costs from a file: TOML or JSON, as measured or as assumed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

from ..diagnostics import Diagnostic, PipeError, Source
from .costs import Costs
from .memory import ACTIVATIONS, SIZES, Memory

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["costs_document", "costs_of_document", "read_profile"]

_NUMBERS = ("latency", "overhead", "bandwidth")
_EXAMPLE = (
    'a profile reads: latency = 0.1, then [costs] with F = 1.0 or F = [1.0, 2.0], "F&B" = 2.5, '
    "and [memory] with activation = 2.0 or one size a stage"
)


def read_profile(path: str) -> Costs:
    """The costs of a profile: ``latency``, ``overhead`` and ``bandwidth``, a table ``costs`` from kind to a
    number or one a stage, and a table ``memory`` with the fields of :class:`Memory`.

    Raises :class:`PipeError` (P001, P003) for a file that cannot be read or says something else.
    """
    try:
        text = Source.decoded(path, Path(path).read_bytes()).text
        document: dict[str, Any] = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
        return costs_of_document(document)
    except OSError as error:
        raise PipeError(Diagnostic("P001", f"cannot read {path}: {error.strerror}")) from error
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise PipeError(Diagnostic("P003", f"{path}: {error}", None, _EXAMPLE)) from error


def costs_document(costs: Costs) -> dict[str, Any]:
    """What a profile of the costs says, as values that JSON has."""
    numbers = {name: value for name in _NUMBERS if (value := getattr(costs, name)) < inf}
    kinds = {"&".join(kind.name for kind in kinds): cost for kinds, cost in costs.kinds.items()}
    memory = {} if costs.memory == ACTIVATIONS else {"memory": asdict(costs.memory)}
    return {**numbers, "costs": kinds, **memory}


def costs_of_document(document: Any) -> Costs:
    """The costs that a profile says. Raises ValueError and TypeError for one that says something else."""
    _only(document, (*_NUMBERS, "costs", "memory"), "a profile")
    numbers = dict(_single({name: document[name] for name in _NUMBERS if name in document}))
    costs = dict(_numbers("cost", document.get("costs", {})))
    return Costs(**numbers, memory=_memory(document.get("memory", {})), **costs)


def _memory(table: Any) -> Memory:
    _only(table, (*SIZES, "released_at_input", "keeps_sent"), "its table `memory`")
    keeps_sent = table.get("keeps_sent", False)
    if not isinstance(keeps_sent, bool):
        raise ValueError(f"keeps_sent must be true or false, not {keeps_sent}")
    parts = dict(_single({name: part for name, part in table.items() if name == "released_at_input"}))
    sizes = dict(_numbers("memory", {name: size for name, size in table.items() if name in SIZES}))
    return Memory(keeps_sent=keeps_sent, **parts, **sizes)


def _only(table: Any, names: Iterable[str], where: str) -> None:
    """Raises ValueError for entries there are none of: a misspelt one would silently change every report."""
    extra = sorted(set(table) - set(names)) if isinstance(table, dict) else [str(table)]
    if extra:
        raise ValueError(f"unknown entries: {extra}; {where} has {', '.join(names)}")


def _single(table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The entries of a table that are one number each. Raises ValueError for any other."""
    for name, value in table.items():
        if not _is_number(value):
            raise ValueError(f"{name} must be one number, not {value}")
        yield name, value


def _numbers(what: str, table: Any) -> Iterator[tuple[str, Any]]:
    """The entries of a table that are numbers, or lists of them. Raises ValueError for any other."""
    if not isinstance(table, dict):
        raise ValueError(f"the table of every {what} must be one, from name to number, not {table}")
    for name, value in table.items():
        values = value if isinstance(value, list) else [value]
        if not all(map(_is_number, values)):
            raise ValueError(f"the {what} of {name} must be a number, or one for every stage, not {value}")
        yield name, value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
