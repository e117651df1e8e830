"""Costs from a file: TOML or JSON, as measured or as assumed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ..diagnostics import Diagnostic, PipeError
from .costs import Costs

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["read_profile"]

_EXAMPLE = 'a profile reads: latency = 0.1, then [costs] with F = 1.0 or F = [1.0, 2.0], "F&B" = 2.5'


def read_profile(path: str) -> Costs:
    """The costs of a profile: ``latency``, and a table ``costs`` from kind to a number or one a stage.

    Raises :class:`PipeError` (P003) for a file that cannot be read or says something else.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        document: dict[str, Any] = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
        return _costs(document)
    except OSError as error:
        raise PipeError(Diagnostic("P001", f"cannot read {path}: {error.strerror}")) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise PipeError(Diagnostic("P003", f"{path}: {error}", None, _EXAMPLE)) from error


def _costs(document: Any) -> Costs:
    if not isinstance(document, dict) or set(document) - {"latency", "costs"}:
        extra = sorted(set(document) - {"latency", "costs"}) if isinstance(document, dict) else document
        raise ValueError(f"unknown entries: {extra}")
    costs = document.get("costs", {})
    for name, cost in [("latency", document.get("latency", 0.0)), *costs.items()]:
        values = cost if isinstance(cost, list) else [cost]
        if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            raise ValueError(f"the cost of {name} must be a number, or one for every stage, not {cost}")
    return Costs(latency=document.get("latency", 0.0), **costs)
