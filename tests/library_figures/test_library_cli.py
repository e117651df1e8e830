"""Every value of the reference orders comes out of the library through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from piper_dsl.cli.main import app

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "reference_orders.json").read_text(encoding="utf-8"))
NAMES = {
    "interleaved_1f1b_v2": "interleaved_1f1b",
    "looped_bfs_v2": "looped_bfs",
    "interleaved_zb_v2": "interleaved_zb",
}
OF_OTHERS = {"hanayo_w1", "hanayo_w1_n4", "torchtitan_custom_csv"}


def simulated(name: str, *options: str) -> dict[str, Any]:
    arguments = ["simulate", name, "-p", "p=4", "-p", "m=8", "--format", "json", *options]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def column(report: dict[str, Any], key: str) -> list[float]:
    return [rank[key] for rank in report["ranks"]]


@pytest.mark.parametrize("key", sorted(set(REFERENCE) - OF_OTHERS))
def test_a_row_of_the_table(key: str) -> None:
    wanted, name = REFERENCE[key], NAMES.get(key, key)
    unit = simulated(name)
    assert unit["makespan"] == wanted["makespan_unit"]
    assert column(unit, "idle") == wanted["idle_per_rank"]
    assert column(unit, "span_idle") == wanted["span_bubble_per_rank"]
    assert column(unit, "peak_activations") == wanted["peak_inflight_hold_until_B_or_W"]
    for part, peaks in (("1", "peak_inflight_release_at_I"), ("0.5", "peak_half_units")):
        assert column(simulated(name, "--released-at-input", part), "peak_memory") == wanted[peaks]
    assert simulated(name, "--latency", "1")["makespan"] == wanted["makespan_comm1"]
    if "makespan_F1_B1" in wanted:
        assert simulated(name, "--cost", "F=1", "--cost", "B=1")["makespan"] == wanted["makespan_F1_B1"]


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "eager_1f1b", "zb_h1", "zb_h2"])
def test_two_stages_per_rank_are_refused_with_the_family_that_takes_them(name: str) -> None:
    """Case B12."""
    result = CliRunner().invoke(app, ["check", name, "-p", "p=4", "-p", "v=2"])
    assert result.exit_code == 1
    assert "has one stage per rank; for more there is" in result.stderr
