"""Schedules that do not check: every code from P301 to P407, with its place and its way out."""

from __future__ import annotations

import pytest

from piper_dsl.codes import CODES

CASES: list[tuple[str, list[str]]] = [
    # Case A4a
    (
        "ranks 1 microbatches 1\nrank 0: 0F0 0F0 0B0",
        ["P402 2:13-16 0F0 occurs twice ~ 2:9-12 the first one => remove one of the two"],
    ),
    # Case A4b
    (
        "ranks 1 microbatches 2\nrank 0: 0F0 0F7 0B0 0B7",
        [
            "P404 2:13-16 microbatch 7 is outside 0..1",
            "P404 2:21-24 microbatch 7 is outside 0..1",
            (
                "P401 2:21-24 stage 0 has no forward (F) for microbatch 1 => "
                "every stage runs every microbatch forward once"
            ),
            ("P401 2:21-24 stage 0 has no backward (B, or I and W) for microbatch 1 => add a B, or an I and a W"),
        ],
    ),
    # Case A6a
    (
        "ranks 1 microbatches 2\nrank 0: 0F0 0F1 0I0 0W0 0I1",
        [
            (
                "P401 2:25-28 stage 0 has no weight gradient (W) for microbatch 1 => "
                "without its W, the weight gradient of an I is missing"
            )
        ],
    ),
    # Case A6b
    (
        "ranks 1 microbatches 1\nrank 0: 0F0 0W0 0I0",
        [("P302 2:13-16 0W0 runs before 0I0, which it needs ~ 2:17-20 needed here => run 0I0 before 0W0")],
    ),
    # Case A7 loop
    (
        (
            "ranks 4 microbatches 1 stages 8\nrank 0: 0F0 7F0 7B0 0B0\nrank 1: 1F0 6F0 6B0 1B0\n"
            "rank 2: 2F0 5F0 5B0 2B0\nrank 3: 3F0 4F0 4B0 3B0"
        ),
        [
            ("P403 2:13-16 7F0: stage 7 is placed on rank 3 but scheduled on rank 0 => the rows fit `place vee`"),
            ("P403 2:17-20 7B0: stage 7 is placed on rank 3 but scheduled on rank 0 => the rows fit `place vee`"),
            ("P403 3:13-16 6F0: stage 6 is placed on rank 2 but scheduled on rank 1 => the rows fit `place vee`"),
            ("P403 3:17-20 6B0: stage 6 is placed on rank 2 but scheduled on rank 1 => the rows fit `place vee`"),
            ("P403 4:13-16 5F0: stage 5 is placed on rank 1 but scheduled on rank 2 => the rows fit `place vee`"),
            ("P403 4:17-20 5B0: stage 5 is placed on rank 1 but scheduled on rank 2 => the rows fit `place vee`"),
            ("P403 5:13-16 4F0: stage 4 is placed on rank 0 but scheduled on rank 3 => the rows fit `place vee`"),
            ("P403 5:17-20 4B0: stage 4 is placed on rank 0 but scheduled on rank 3 => the rows fit `place vee`"),
        ],
    ),
    # Case A7 mid
    (
        (
            "ranks 4 microbatches 1 stages 8\nrank 0: 0F0 4F0 4B0 0B0\nrank 1: 1F0 5F0 5B0 1B0\n"
            "rank 2: 2F0 6F0 7F0 7B0 6B0 2B0\nrank 3: 3F0 3B0"
        ),
        [
            "P403 4:17-20 7F0: stage 7 is placed on rank 3 but scheduled on rank 2",
            "P403 4:21-24 7B0: stage 7 is placed on rank 3 but scheduled on rank 2",
        ],
    ),
    (
        "ranks 3 microbatches 2\nrank 0: F0 F1 B0 B1\nrank 1: F0 B0 F1 B1\nrank 2: F1 F0 B0 B1",
        [
            (
                "P301 3:12-14 ranks 1 and 2 wait for each other ~ "
                "4:9-11 rank 2 waits for the activation of microbatch 1 from rank 1 => "
                "on rank 1, run 1F1 before 1B0"
            )
        ],
    ),
    (
        "ranks 1 microbatches 1 stages 2\nrank 0: 1F0 0F0 1B0 0B0",
        [("P302 2:9-12 1F0 runs before 0F0, which it needs ~ 2:13-16 needed here => run 0F0 before 1F0")],
    ),
    (
        "ranks 1 microbatches 2\nrank r { for i in 0:2 { B[i] F[i] } }",
        [
            (
                "P302 2:25-29 0B0 runs before 0F0, which it needs for r = 0, i = 0 ~ "
                "2:30-34 needed here => run 0F0 before 0B0"
            )
        ],
    ),
    (
        "ranks 1 microbatches 1\nrank 0: F0 0OPT B0",
        [("P302 2:12-16 0OPT runs before 0B0, which it needs ~ 2:17-19 needed here => run 0B0 before 0OPT")],
    ),
    (
        "ranks 1 microbatches 1\nrank 0: F0 0REDUCE_GRAD B0 0OPT",
        [
            (
                "P302 2:12-24 0REDUCE_GRAD runs before 0B0, which it needs ~ "
                "2:25-27 needed here => run 0B0 before 0REDUCE_GRAD"
            )
        ],
    ),
    (
        "ranks 1 microbatches 1\nrank 0: F0 B0 0OPT 0REDUCE_GRAD",
        [
            (
                "P302 2:15-19 0OPT runs before 0REDUCE_GRAD, which it needs ~ "
                "2:20-32 needed here => run 0REDUCE_GRAD before 0OPT"
            )
        ],
    ),
    (
        "ranks 1 microbatches 1\nrank 0: F0 B0 R0",
        [("P302 2:12-14 0B0 runs before 0R0, which it needs ~ 2:15-17 needed here => run 0R0 before 0B0")],
    ),
    (
        "ranks 1 microbatches 1\nrank 0: F0 W0 I0",
        [("P302 2:12-14 0W0 runs before 0I0, which it needs ~ 2:15-17 needed here => run 0I0 before 0W0")],
    ),
    (
        "ranks 1 microbatches 1\nrank 0: F0 & B0",
        [("P303 2:14-16 0B0 overlaps with 0F0, which it needs ~ 2:9-11 needed here => run them one after the other")],
    ),
    (
        "ranks 1 microbatches 1\nrank 0: F0 I0 & W0",
        [("P303 2:17-19 0W0 overlaps with 0I0, which it needs ~ 2:12-14 needed here => run them one after the other")],
    ),
    (
        "ranks 2 microbatches 2\nrank 0: F0 F1 & B0 B1\nrank 1: F0 F1 B0 B1",
        [
            (
                "P301 2:17-19 ranks 0 and 1 wait for each other ~ "
                "3:12-14 rank 1 waits for the activation of microbatch 1 from rank 0"
            )
        ],
    ),
    (
        "ranks 1 microbatches 2\nrank 0: F0 B0 B1",
        [
            (
                "P401 2:15-17 stage 0 has no forward (F) for microbatch 1 => "
                "every stage runs every microbatch forward once"
            )
        ],
    ),
    (
        "ranks 1 microbatches 2\nrank 0: F0 F1 B0",
        [("P401 2:12-14 stage 0 has no backward (B, or I and W) for microbatch 1 => add a B, or an I and a W")],
    ),
    (
        "ranks 1 microbatches 20\nrank r { F[0:20] B[0:9] }",
        [
            (
                "P401 2:10-17 stage 0 has no backward (B, or I and W) for microbatches 9, 10, 11, 12, 13, "
                "14, 15, 16 and 3 more => add a B, or an I and a W"
            )
        ],
    ),
    (
        "ranks 1 microbatches 1\nrank 0: F0 W0",
        ["P401 2:12-14 stage 0 has no input gradient (I) for microbatch 0 => a W follows its I"],
    ),
    (
        "ranks 1 microbatches 2\nrank 0: F0 R0 F1 B1",
        [
            ("P401 2:9-11 stage 0 has no backward (B, or I and W) for microbatch 0 => add a B, or an I and a W"),
            "P401 2:12-14 0R0 has no backward to recompute for",
        ],
    ),
    (
        "ranks 1 microbatches 2\nrank r { for i in 0:2 { F[i] B[0] } }",
        [
            ("P401 2:25-29 stage 0 has no backward (B, or I and W) for microbatch 1 => add a B, or an I and a W"),
            ("P402 2:30-34 0B0 occurs twice for r = 0, i = 1 ~ 2:30-34 the first one => remove one of the two"),
        ],
    ),
    (
        "ranks 2 microbatches 1\nrank 0: 0F0 1F0 0B0\nrank 1: 1F0 1B0",
        [
            "P403 2:13-16 1F0: stage 1 is placed on rank 1 but scheduled on rank 0",
            "P402 3:9-12 1F0 occurs twice ~ 2:13-16 the first one => remove one of the two",
        ],
    ),
    (
        "ranks 1 microbatches 1\nrank 0: F0 B0 0OPT 0OPT",
        ["P402 2:20-24 0OPT occurs twice ~ 2:15-19 the first one => remove one of the two"],
    ),
    (
        "ranks 2 microbatches 3\nrank r { F[0:3]@(1 - r) }",
        [("P403 2:10-24 1F0: stage 1 is placed on rank 1 but scheduled on rank 0 for r = 0 (and 5 more like it)")],
    ),
    (
        "ranks 2 microbatches 1\nrank 0: 0F0 0B0 1OPT\nrank 1: 1F0 1B0 0OPT",
        [
            "P403 2:17-21 1OPT: stage 1 is placed on rank 1 but scheduled on rank 0",
            (
                "P406 2:17-21 stage 0 is never stepped on rank 0, while other stages are => "
                "add `OPT@0` to rank 0, or remove every OPT"
            ),
            "P403 3:17-21 0OPT: stage 0 is placed on rank 0 but scheduled on rank 1",
            (
                "P406 3:17-21 stage 1 is never stepped on rank 1, while other stages are => "
                "add `OPT@1` to rank 1, or remove every OPT"
            ),
        ],
    ),
    (
        "ranks 2 microbatches 1\nrank r { F[0]@(r + 1) }",
        [
            "P404 2:10-22 stage 2 is outside 0..1 for r = 1",
            "P403 2:10-22 1F0: stage 1 is placed on rank 1 but scheduled on rank 0 for r = 0",
            (
                "P401 2:10-22 stage 0 has no forward (F) for microbatch 0 => "
                "every stage runs every microbatch forward once"
            ),
        ],
    ),
    (
        "ranks 1 microbatches 2\nrank r { F[0:4] }",
        ["P404 2:10-16 microbatch 2 is outside 0..1 for r = 0 (and 1 more like it)"],
    ),
    ("ranks 1 microbatches 1\nrank r { F[-1] F[0] }", ["P404 2:10-15 microbatch -1 is outside 0..0 for r = 0"]),
    ("ranks 1 microbatches 1\nrank r { F0 OPT@5 }", ["P404 2:13-18 stage 5 is outside 0..0 for r = 0"]),
    (
        "ranks 1 microbatches 1\nrank 0: F0 B0 I0 W0",
        [
            (
                "P405 2:15-17 microbatch 0 has two backwards on stage 0: a whole B and an I or W ~ "
                "2:12-14 the whole backward => keep B, or I and W"
            )
        ],
    ),
    (
        "ranks 1 microbatches 1\nrank 0: F0 B0 W0",
        [
            (
                "P405 2:15-17 microbatch 0 has two backwards on stage 0: a whole B and an I or W ~ "
                "2:12-14 the whole backward => keep B, or I and W"
            )
        ],
    ),
    (
        "ranks 2 microbatches 1\nrank 0: F0 B0 0OPT\nrank 1: F0 B0",
        [
            (
                "P406 3:12-14 stage 1 is never stepped on rank 1, while other stages are => "
                "add `OPT@1` to rank 1, or remove every OPT"
            )
        ],
    ),
    ("ranks 1 microbatches 1\nrank 0: F0 0OPT", ["P406 2:12-16 an optimizer step in a schedule without a backward"]),
    (
        "ranks 1 microbatches 1 stages 2\nrank 0: 0F0 1F0 1B0 0B0 1OPT",
        [
            (
                "P406 2:25-29 stage 0 is never stepped on rank 0, while other stages are => "
                "add `OPT@0` to rank 0, or remove every OPT"
            )
        ],
    ),
    (
        "ranks 1 microbatches 1\nrank 0: 0UNSHARD 0UNSHARD F0 B0 0RESHARD",
        ["P407 2:18-26 0UNSHARD: stage 0 is gathered twice without a RESHARD in between"],
    ),
    (
        "ranks 1 microbatches 1\nrank 0: 0RESHARD 0UNSHARD F0 B0",
        ["P407 2:9-17 0RESHARD: stage 0 is dropped without an UNSHARD before"],
    ),
    (
        "ranks 1 microbatches 1\nrank 0: 0UNSHARD F0 0RESHARD B0",
        ["P407 2:30-32 0B0: stage 0 computes while its parameters are not gathered"],
    ),
    (
        "ranks 2 microbatches 2\nrank 0: 0F0 0F0 0B0 0B5\nrank 1: 1F1 1F0 1B0 0B1",
        [
            "P402 2:13-16 0F0 occurs twice ~ 2:9-12 the first one => remove one of the two",
            "P404 2:21-24 microbatch 5 is outside 0..1",
            ("P401 3:9-12 stage 1 has no backward (B, or I and W) for microbatch 1 => add a B, or an I and a W"),
            "P403 3:21-24 0B1: stage 0 is placed on rank 0 but scheduled on rank 1",
            (
                "P401 3:21-24 stage 0 has no forward (F) for microbatch 1 => "
                "every stage runs every microbatch forward once"
            ),
        ],
    ),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_findings(findings, text: str, expected: list[str]) -> None:
    assert findings(text) == expected


def test_every_code_of_order_and_completeness_has_a_case() -> None:
    seen = {finding.split()[0] for _, expected in CASES for finding in expected}
    assert {code for code in CODES if code[:2] in ("P3", "P4")} <= seen


ACCEPTED = {
    "case A1": "ranks 2 microbatches 2 rank 0: 0F0 0F1 0I0 0W0 0I1 0W1 rank 1: 1F0 1I0 1W0 1F1 1I1 1W1",
    "case A7 with placement vee": """ranks 4 microbatches 1 stages 8 place vee
        rank 0: 0F0 7F0 7B0 0B0 rank 1: 1F0 6F0 6B0 1B0 rank 2: 2F0 5F0 5B0 2B0 rank 3: 3F0 4F0 4B0 3B0""",
    "case A8": """ranks 2 microbatches 1 stages 4 place s on min(s, 3 - s)
        rank 0: 0F0 3F0 3B0 0B0 rank 1: 1F0 2F0 2B0 1B0""",
    "forward only": "ranks 2 microbatches 2 rank r { F[0:2] }",
    "mixed backwards": "ranks 1 microbatches 2 rank 0: F0 F1 B0 I1 W1",
    "recompute": "ranks 1 microbatches 1 rank 0: F0 R0 B0",
    "reduction before the step": "ranks 1 microbatches 1 rank 0: F0 B0 0REDUCE_GRAD 0OPT",
    "gathered and dropped twice": "ranks 1 microbatches 1 rank 0: 0UNSHARD F0 0RESHARD 0UNSHARD B0 0RESHARD 0OPT",
    "only one stage sharded": "ranks 1 microbatches 1 stages 2 rank 0: 0UNSHARD 0F0 1F0 1B0 0B0 0RESHARD",
    "never dropped": "ranks 1 microbatches 1 rank 0: 0UNSHARD F0 B0",
    "two towers": "ranks 4 microbatches 1 edge 0 -> 2 edge 1 -> 2 edge 2 -> 3 rank r { F[0] B[0] OPT }",
    "overlap": "ranks 2 microbatches 2 rank 0: F0 F1 B0 B1 rank 1: F0 F1 & B0 B1",
    "a rank without work": "ranks 2 microbatches 1 stages 1 rank 0: F0 B0 0OPT rank 1:",
    "the step of an early stage does not wait for the others": """ranks 1 microbatches 1 stages 2
        rank 0: 0F0 1F0 1B0 1OPT 0B0 0OPT""",
}


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(findings, text: str) -> None:
    assert findings(text) == []


def test_case_a10_names_the_cycle_and_the_stuck_heads(diagnostics) -> None:
    """Also the example of language.md, section 6."""
    text = "ranks 2 microbatches 2\nrank 0: 0F0 0B0 0F1 0B1\nrank 1: 1F1 1F0 1B0 1B1"
    (found,) = diagnostics(text)
    assert (found.code, found.message) == ("P301", "ranks 0 and 1 wait for each other")
    assert (str(found.span), found.span.text, found.span.end_column) == ("t.pipe:2:13", "0B0", 16)
    assert found.label == "rank 0 waits for the gradient of microbatch 0 from rank 1"
    (other,) = found.related
    assert (str(other.span), other.span.text) == ("t.pipe:3:9", "1F1")
    assert other.message == "rank 1 waits for the activation of microbatch 1 from rank 0"
    assert found.notes == (
        "cycle: 0B0 → 1B0 → 1F0 → 1F1 → 0F1 → 0B0",
        "stuck: rank 0 at 0B0, rank 1 at 1F1",
    )
    assert found.help == "on rank 0, run 0F1 before 0B0"


def test_the_repair_that_is_offered_works(findings) -> None:
    assert findings("ranks 2 microbatches 2\nrank 0: 0F0 0F1 0B0 0B1\nrank 1: 1F1 1F0 1B0 1B1") == []


def test_a_cycle_in_loops_says_for_which_values(diagnostics) -> None:
    text = "ranks 2 microbatches 2\nrank 0 { for i in 0:2 { F[i] B[i] } }\nrank r { for i in 1:-1:-1 { F[i] B[i] } }"
    (found,) = diagnostics(text)
    assert (found.code, found.span.text, found.related[0].span.text) == ("P301", "B[i]", "F[i]")
    assert found.label == "rank 0 waits for the gradient of microbatch 0 from rank 1 for i = 0"
    assert found.related[0].message == "rank 1 waits for the activation of microbatch 1 from rank 0 for r = 1, i = 1"


def test_cycles_that_have_nothing_in_common_are_all_found(diagnostics) -> None:
    pair = "edge 0 -> 1 edge 2 -> 3\n"
    crossed = "0: 0F0 0B0 0F1 0B1\nrank 1: 1F1 1F0 1B0 1B1"
    other = "2: 2F0 2B0 2F1 2B1\nrank 3: 3F1 3F0 3B0 3B1"
    found = diagnostics(f"ranks 4 microbatches 2 {pair}rank {crossed}\nrank {other}")
    assert [d.message for d in found] == ["ranks 0 and 1 wait for each other", "ranks 2 and 3 wait for each other"]
    assert [d.span.line for d in found] == [2, 4]


def test_what_is_missing_from_an_empty_rank_has_a_place_too(diagnostics) -> None:
    (found,) = diagnostics("ranks 1 microbatches 1\nrank 0:")
    assert (found.code, found.message) == ("P401", "stage 0 has no forward (F) for microbatch 0")
    assert found.span is not None
