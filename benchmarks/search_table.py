"""What the search reaches in problems that zero-bubble's heuristics are known on, and how fast a rule orders.

The figure is the longest time from a rank's first operation to its last, four ranks with one stage each; limits
count half activations, of which F holds two and I and W free one each (Qi et al., arXiv 2401.10241). `bound`
is what no order beats. With OR-tools, small problems are solved exactly as well.

    python benchmarks/search_table.py            # the table
    python benchmarks/search_table.py --rules    # list scheduling of 10^5 operations, beside expanding written ones
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from rich.console import Console
from rich.table import Table

import piper_dsl as piper
from piper_dsl.expand import expand
from piper_dsl.ir.memory import ACTIVATIONS
from piper_dsl.search import Found, search
from piper_dsl.syntax import parse

PROBLEMS = [
    # microbatches, (F, I, W), time of a transfer, limit in half activations, zero-bubble's heuristics
    (8, (1, 1, 1), 0, 8, 27),
    (8, (1, 1, 1), 0, 14, 24),
    (8, (1, 1, 1), 1, 16, 29),
    (12, (5, 6, 4), 0, 10, 193),
]
RULES = {
    "gpipe": ("auto { F[i]@s  B[i]@s  OPT }", 16, 3125),
    "1f1b": ("auto r { B[i]@s  F[i]@s when held < p - r  OPT }", 16, 3125),
    "zb_h1": ("auto r { F[i]@s when in_flight < p - r and held < p  I[i]@s  W[i]@s  OPT }", 16, 2083),
}


def found(microbatches: int, costs: tuple[float, float, float], latency: float, halves: float) -> Found:
    forward, inputs, weights = costs
    memory = replace(ACTIVATIONS, released_at_input=0.5)
    given = piper.Costs(F=forward, I=inputs, W=weights, latency=latency, memory=memory)
    template = piper.load("gpipe", p=4, m=microbatches)
    return search(template, given, memory_limit=halves / 2, measure="span", backward="split")


def search_table() -> Table:
    table = Table(title="search, p = 4")
    for heading in ("m", "F I W", "transfer", "limit", "heuristics", "reached", "bound", "set by", "seconds"):
        table.add_column(heading, justify="right")
    for m, costs, latency, halves, known in PROBLEMS:
        one = found(m, costs, latency, halves)
        figures = (m, " ".join(map(str, costs)), latency, halves, known, f"{one.value:g}", f"{one.bound.value:g}")
        table.add_row(*map(str, figures), one.bound.resource.value, f"{one.seconds:.2f}")
    return table


def rules_table() -> Table:
    """Seconds to order by rule and to expand the library's written order of the same size."""
    table = Table(title="ordering by rule")
    for heading in ("rule", "operations", "seconds", "written, s", "ratio"):
        table.add_column(heading, justify="right")
    for name, (rule, p, m) in RULES.items():
        text = f"param p = {p}\nparam m = {m}\nranks p\nmicrobatches m\n{rule}\n"
        begin = time.perf_counter()
        schedule = expand(parse(piper.Source("rule.pipe", text)))
        by_rule = time.perf_counter() - begin
        begin = time.perf_counter()
        piper.load(name, p=p, m=m)
        written = time.perf_counter() - begin
        table.add_row(name, f"{len(schedule):,}", f"{by_rule:.2f}", f"{written:.3f}", f"{by_rule / written:.0f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", action="store_true", help="time list scheduling instead")
    Console().print(rules_table() if parser.parse_args().rules else search_table())


if __name__ == "__main__":
    main()
