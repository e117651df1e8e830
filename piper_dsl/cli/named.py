"""What the command line names as ``module:function``, found and called."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from ..diagnostics import Diagnostic, PipeError
from ..runtime.failure import where_raised

__all__ = ["made", "named", "users_fault"]


def named(name: str, option: str) -> Callable[..., Any]:
    """The function of a name that ``option`` gave. Raises PipeError (P701) where there is none."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ModuleNotFoundError, AttributeError, ValueError) as error:
        help_ = "write module:function; modules are found from the current folder and the installed packages"
        raise PipeError(Diagnostic("P701", f"{option} {name}: {error}", None, help_)) from error
    except Exception as error:
        raise users_fault(f"{option} {name} does not import:", error) from error
    if not callable(found):
        raise PipeError(Diagnostic("P701", f"{option} {name} is not a function"))
    result: Callable[..., Any] = found
    return result


def made(name: str, option: str, number: int) -> Any:
    """What a factory returns; it is given the number if it takes one."""
    factory = named(name, option)
    parameters = inspect.signature(factory).parameters.values()
    takes_one = any(p.default is p.empty or p.annotation in (int, "int") for p in parameters)
    try:
        return factory(number) if takes_one else factory()
    except Exception as error:
        raise users_fault(f"{option} {name} raised", error) from error


def users_fault(what: str, error: Exception) -> PipeError:
    """An error of code that the user named, with the places it came through."""
    return PipeError(Diagnostic("P701", f"{what} {type(error).__name__}: {error}", notes=where_raised(error)))
