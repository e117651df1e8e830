"""What the tests of the light core share: from a text to its schedule, or to its findings in one line each."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from piper_dsl.check import check
from piper_dsl.diagnostics import Diagnostic, PipeError, Source, Span
from piper_dsl.expand import DEFAULT_MAX_OPS, expand
from piper_dsl.ir.schedule import Schedule
from piper_dsl.syntax import parse


def pytest_configure() -> None:
    """Ctrl-C works as from a terminal: what a shell starts in its background ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _schedule(text: str, *, max_ops: int = DEFAULT_MAX_OPS, **parameters: int) -> Schedule:
    return expand(parse(Source("t.pipe", text)), parameters, max_ops)


def _diagnostics(text: str, *, max_ops: int = DEFAULT_MAX_OPS, **parameters: int) -> tuple[Diagnostic, ...]:
    try:
        return check(_schedule(text, max_ops=max_ops, **parameters))
    except PipeError as error:
        return error.diagnostics


def _place(span: Span | None) -> str:
    """`3:5-9` is line 3, columns 5 to 8; `3:5-4:2` ends on another line; `-` is nowhere."""
    if span is None:
        return "-"
    assert span.source.name == "t.pipe"
    end = f"{span.end_line}:{span.end_column}" if span.end_line != span.line else f"{span.end_column}"
    return f"{span.line}:{span.column}-{end}"


def _line(finding: Diagnostic) -> str:
    related = "".join(f" ~ {_place(r.span)} {r.message}" for r in finding.related)
    help_ = f" => {finding.help}" if finding.help else ""
    return f"{finding.code} {_place(finding.span)} {finding.message}{related}{help_}"


@pytest.fixture(scope="session")
def schedule() -> Callable[..., Schedule]:
    """``schedule(text, **parameters)``: the expanded schedule of a file."""
    return _schedule


@pytest.fixture(scope="session")
def diagnostics() -> Callable[..., tuple[Diagnostic, ...]]:
    """``diagnostics(text, **parameters)``: everything that parsing, expanding and checking find."""
    return _diagnostics


@pytest.fixture(scope="session")
def findings() -> Callable[..., list[str]]:
    """``findings(text, **parameters)``: the same, each as ``CODE place message ~ related => help``."""
    return lambda text, **parameters: [_line(finding) for finding in _diagnostics(text, **parameters)]
