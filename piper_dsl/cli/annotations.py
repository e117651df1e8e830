"""Findings in the forms that code hosts read: workflow annotations and SARIF."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..codes import CODES
from ..diagnostics import Diagnostic, Severity, Span

__all__ = ["as_github", "as_sarif"]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_github(finding: Diagnostic) -> str:
    """A finding as a workflow command of GitHub Actions, one line."""
    properties = {"title": finding.code}
    if finding.span:
        properties |= {
            "file": finding.span.source.name,
            "line": str(finding.span.line),
            "col": str(finding.span.column),
            "endLine": str(finding.span.end_line),
            "endColumn": str(finding.span.end_column),
        }
    listed = ",".join(f"{name}={_escaped(value, ',:')}" for name, value in properties.items())
    text = f"{finding.message}\n{finding.help}" if finding.help else finding.message
    return f"::{finding.severity.value} {listed}::{_escaped(text, '')}"


def _escaped(text: str, also: str) -> str:
    for char in "%\r\n" + also:
        text = text.replace(char, f"%{ord(char):02X}")
    return text


def as_sarif(findings: Iterable[Diagnostic]) -> dict[str, Any]:
    """Findings as one SARIF 2.1.0 log with the rules they break."""
    found = list(findings)
    codes = sorted({finding.code for finding in found})
    rules = [{"id": code, "shortDescription": {"text": CODES[code]}} for code in codes]
    driver = {"name": "piper-dsl", "rules": rules}
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": [*map(_result, found)]}],
    }


def _result(finding: Diagnostic) -> dict[str, Any]:
    text = f"{finding.message}. {finding.help}" if finding.help else finding.message
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "level": "error" if finding.severity is Severity.ERROR else "warning",
        "message": {"text": text},
        "locations": [_location(finding.span)] if finding.span else [],
    }
    if finding.related:
        result["relatedLocations"] = [{**_location(r.span), "message": {"text": r.message}} for r in finding.related]
    return result


def _location(span: Span) -> dict[str, Any]:
    region = {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }
    return {"physicalLocation": {"artifactLocation": {"uri": span.source.name}, "region": region}}
