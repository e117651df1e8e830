"""A failing file and a repaired one for every code that a .pipe file can give."""

from __future__ import annotations

from pathlib import Path

import pytest
from code_places import EXPECTED, findings_of

from piper_dsl.diagnostics import Span

HERE = Path(__file__).parent


def _codes(ending: str) -> list[str]:
    return sorted(path.name.removesuffix(ending) for path in HERE.glob(f"*{ending}"))


def _place(span: Span | None) -> str:
    return f"{span.line}:{span.column}-{span.end_line}:{span.end_column}" if span else "-"


def test_every_failing_file_has_a_repaired_one_and_a_place() -> None:
    assert _codes(".bad.pipe") == _codes(".good.pipe") == sorted(EXPECTED)


@pytest.mark.parametrize("code", EXPECTED)
def test_a_failing_file_gives_its_code_at_its_place(code: str) -> None:
    name = f"{code}.bad.pipe"
    (finding,) = findings_of(code, name, (HERE / name).read_text(encoding="utf-8"))
    assert (finding.code, _place(finding.span)) == (code, EXPECTED[code].place)
    assert finding.message.startswith(EXPECTED[code].message)
    assert finding.span is not None
    assert finding.span.source.name == name


@pytest.mark.parametrize("code", EXPECTED)
def test_a_repaired_file_gives_nothing(code: str) -> None:
    name = f"{code}.good.pipe"
    assert findings_of(code, name, (HERE / name).read_text(encoding="utf-8")) == ()
