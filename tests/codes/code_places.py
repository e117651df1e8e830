"""What each failing file is to give: one finding, at this place, with a message that starts so."""

from __future__ import annotations

from dataclasses import dataclass

from piper_dsl.check import check
from piper_dsl.diagnostics import Diagnostic, PipeError, Source
from piper_dsl.expand import expand
from piper_dsl.syntax import parse


@dataclass(frozen=True)
class Expected:
    """``place`` is line:column-end_line:end_column; the rest are the settings it takes to be found."""

    place: str
    message: str
    transport: str = "buffered"
    memory_limit: float | None = None


EXPECTED = {
    "P101": Expected("1:9-1:10", "expected `=`, found `4`"),
    "P102": Expected("5:112-5:113", "nested more than 100 deep"),
    "P104": Expected("5:21-5:25", "`1B1x` is not an operation"),
    "P105": Expected("5:12-5:28", "the number is too large"),
    "P201": Expected("10:29-10:36", "unknown name `warm_up`"),
    "P202": Expected("9:7-9:8", "`n` is defined twice"),
    "P203": Expected("9:8-9:19", "division by zero for r = 0, i = 0"),
    "P204": Expected("7:18-7:59", "the value leaves the range of integers"),
    "P205": Expected("10:7-10:13", "`warmup` takes 1 argument, not 2"),
    "P206": Expected("7:25-7:33", "stage(1) does not exist: rank 1 owns"),
    "P207": Expected("7:14-7:19", "a definition that calls itself: `drain` → `drain`"),
    "P208": Expected("7:20-7:23", "the schedule grows beyond 10,000,000 operations here"),
    "P209": Expected("6:3-6:9", "which stage? rank 0 owns"),
    "P210": Expected("6:24-6:30", "OPT concerns a stage, not a microbatch"),
    "P211": Expected("1:1-1:1", "the file does not say its `microbatches`"),
    "P213": Expected("6:12-6:18", "rank 2 is outside 0..1 for s = 4"),
    "P214": Expected("7:1-7:12", "the stage graph has a cycle"),
    "P215": Expected("5:12-5:17", "a cost is at least 0"),
    "P216": Expected("4:1-4:55", "microbatches come in rounds of p (p = 4, m = 6)"),
    "P217": Expected("6:6-6:7", "rank 2 is outside 0..1"),
    "P218": Expected("5:24-5:24", "no body for rank 2"),
    "P219": Expected("6:3-6:15", "B of stage 0 stands in slot 4, but B of stage 1, which it needs, ends in slot 5"),
    "P220": Expected("4:1-8:2", "a rule needs F, F and B, or F, I and W"),
    "P221": Expected("9:15-9:31", "the rule stops at time 2: rank 2 may not start 2F0"),
    "P301": Expected("10:42-10:46", "ranks 0 and 1 wait for each other"),
    "P302": Expected("7:18-7:22", "1B0 runs before 1F0, which it needs"),
    "P303": Expected("7:25-7:29", "1B0 overlaps with 1F0, which it needs"),
    "P401": Expected("7:3-7:9", "stage 1 has no backward (B, or I and W) for microbatch 3"),
    "P402": Expected("6:18-6:26", "0F1 occurs twice"),
    "P403": Expected("8:18-8:30", "3F0: stage 3 is placed on rank 1 but scheduled on rank 0"),
    "P404": Expected("6:18-6:26", "microbatch 4 is outside 0..3"),
    "P405": Expected("11:17-11:21", "microbatch 2 has two backwards on stage 1"),
    "P406": Expected("6:3-6:9", "stage 1 is never stepped on rank 1"),
    "P407": Expected("8:18-8:22", "0B0: stage 0 computes while its parameters are not gathered"),
    "P501": Expected("4:23-4:30", "transfers wait for each other on transport `pair`", transport="pair"),
    "P502": Expected("4:12-4:19", "rank 0 sends 0SEND_F0 where rank 1 receives 1RECV_F1", transport="direction"),
    "P503": Expected("14:5-14:9", "the transfer from rank 1 to rank 0 has no 1SEND_B0"),
    "P504": Expected("5:31-5:33", "1F1 stands before 1RECV_F1, which it needs"),
    "P505": Expected("7:25-7:37", "rank 0 starts 0REDUCE_GRAD where rank 1 starts 1REDUCE_GRAD"),
    "P601": Expected("5:18-5:22", "rank 0 holds 3 activations here, more than its limit of 2", memory_limit=2),
}


def findings_of(code: str, name: str, text: str) -> tuple[Diagnostic, ...]:
    """Everything found in a text under the settings of a code."""
    expected = EXPECTED[code]
    try:
        schedule = expand(parse(Source(name, text)))
    except PipeError as error:
        return error.diagnostics
    return check(schedule, expected.transport, expected.memory_limit)
