"""Files that do not expand: every code from P201 to P218, its place, and the values of the variables."""

from __future__ import annotations

import pytest

from piper_dsl.codes import CODES

ONE = "ranks 1\nmicrobatches 2\n"
TWO = "ranks 2\nmicrobatches 2\n"
REST = "rank r { F[0:2] B[0:2] }"

CASES: list[tuple[str, list[str]]] = [
    # P201: an unknown name
    (ONE + "rank r { F[warmpu] let warmup = 1 }", ["P201 3:12-18 unknown name `warmpu`"]),
    (
        "param micro = 2\nranks 1\nmicrobatches mcro\n" + REST,
        ["P201 3:14-18 unknown name `mcro` => did you mean `micro`?"],
    ),
    (
        "fn chunk(k) = k\n" + ONE + "rank r { F[chnk(0)] }",
        ["P201 4:12-16 unknown function `chnk` => did you mean `chunk`?"],
    ),
    (
        "seq steady() { F[0] }\n" + ONE + "rank r { staedy() }",
        ["P201 4:10-16 unknown sequence `staedy` => did you mean `steady`?"],
    ),
    (ONE + "place lop\n" + REST, ["P201 3:7-10 unknown placement `lop` => did you mean `loop`?"]),
    (
        ONE + "place zigzag\n" + REST,
        ["P201 3:7-13 unknown placement `zigzag` => `loop`, `vee`, or a rule: `place s on …`"],
    ),
    ("ranks p\nparam p = 1\nmicrobatches 2\n" + REST, ["P201 1:7-8 unknown name `p`"]),
    (
        "fn f() = k\nlet a = f()\nlet k = 1\n" + ONE + REST,
        ["P201 1:10-11 `k` is used before it is defined => move its definition up"],
    ),
    (ONE + "rank r { if 1 { let x = 0 } F[x] }", ["P201 3:31-32 unknown name `x`"]),
    ("seq s() { F[r] }\n" + ONE + "rank r { s() }", ["P201 1:13-14 unknown name `r`"]),
    ("param p = p\n" + ONE + REST, ["P201 1:11-12 unknown name `p`"]),
    # P202: something is defined or said twice
    (
        "let x = 1\nlet x = 2\n" + ONE + REST,
        ["P202 2:5-6 `x` is defined twice ~ 1:5-6 first defined here => choose another name"],
    ),
    (
        "param x = 1\nlet x = 2\n" + ONE + REST,
        ["P202 2:5-6 `x` is defined twice ~ 1:7-8 first defined here => choose another name"],
    ),
    ("let min = 1\n" + ONE + REST, ["P202 1:5-8 `min` is a function of the language => choose another name"]),
    (
        "fn f(a, a) = a\n" + ONE + REST,
        ["P202 1:9-10 `a` is defined twice ~ 1:6-7 first defined here => choose another name"],
    ),
    (
        "fn f(a) = a\nseq f() { }\n" + ONE + REST,
        ["P202 2:5-6 `f` is defined twice ~ 1:4-5 first defined here => choose another name"],
    ),
    (
        ONE + "rank r { let x = 1 let x = 2 }",
        ["P202 3:24-25 `x` is defined twice ~ 3:14-15 first defined here => choose another name"],
    ),
    (
        ONE + "rank r { for i in 0:2 { let i = 1 } }",
        ["P202 3:29-30 `i` is defined twice ~ 3:14-15 first defined here => choose another name"],
    ),
    (ONE + "ranks 2\n" + REST, ["P202 3:1-8 `ranks` is said twice ~ 1:1-8 first said here"]),
    (ONE + "place loop\nplace vee\n" + REST, ["P202 4:1-10 the placement is said twice ~ 3:1-11 first"]),
    (TWO + "rank 0: F0\nrank 0:2 { F[0] }", ["P202 4:6-9 rank 0 has two bodies ~ 3:6-7 the first one"]),
    (TWO + "rank r { F[0] }\nrank q { F[0] }", ["P202 4:6-7 two bodies for all remaining ranks ~ 3:6-7 the first one"]),
    (
        "ranks 2\nmicrobatches 1\nedge 0 -> 1\nedge 0 -> 1\nrank r { }",
        ["P202 4:1-12 the edge 0 -> 1 is said twice ~ 3:1-12 first said here"],
    ),
    ("ranks 2\nmicrobatches 1\ntie 0, 0\nrank r { }", ["P202 3:1-9 a tie names a stage twice"]),
    # P203: division by zero, or a range with step 0
    ("let x = 1 // 0\n" + ONE + REST, ["P203 1:9-15 division by zero"]),
    (
        TWO + "rank r {\n  for i in 0:2 { for j in 0:3 { F[4 % (2 * i + j - r - 2)] } }\n}",
        ["P203 4:35-58 division by zero for r = 0, i = 0, j = 2"],
    ),
    (
        "fn f(k) = 6 // k\n" + ONE + "rank r { for i in 0:2 { F[f(1 - i)] } }",
        ["P203 1:11-17 division by zero for r = 0, i = 1"],
    ),
    (
        "seq s(k) { F[6 % k] }\n" + ONE + "rank r { for i in 0:2 { s(1 - i) } }",
        ["P203 1:14-19 division by zero for r = 0, i = 1, k = 0"],
    ),
    (ONE + "rank r { for i in 0:2 { F[0:2:i] } }", ["P203 3:31-32 a range cannot have step 0 for r = 0, i = 0"]),
    (TWO + "rank 0:2:0 { }\n" + REST, ["P203 3:6-11 a range cannot have step 0"]),
    (ONE + "cost F = 1 // 0\n" + REST, ["P203 3:10-16 division by zero"]),
    (TWO + "cost F@s = 1 // (s - 1)\n" + REST, ["P203 3:12-24 division by zero for s = 1"]),
    (TWO + "place s on 1 // s\n" + REST, ["P203 3:12-18 division by zero for s = 0"]),
    ("require 1 // 0 == 1\n" + ONE + REST, ["P203 1:9-15 division by zero"]),
    # P204: a value leaves the range of integers
    (
        "let x = 100000000 * 100000000\n" + ONE + REST,
        ["P204 1:9-30 the value leaves the range of integers, ±1,000,000,000,000,000"],
    ),
    (
        ONE + "rank r { for i in 0:3 { F[999999999999999 + i] } }",
        ["P204 3:27-46 the value leaves the range of integers, ±1,000,000,000,000,000 for r = 0, i = 2"],
    ),
    (
        ONE + "rank r { for i in 2:4 { F[i * 1000000000] } }",
        ["P204 3:25-42 a stage or microbatch of more than 32 bits for r = 0, i = 3"],
    ),
    (ONE + "rank r { F[0]@(3000000000) }", ["P204 3:10-27 a stage or microbatch of more than 32 bits for r = 0"]),
    # P205: a call that does not fit what is called
    ("fn f(a, b) = a\nlet x = f(1)\n" + ONE + REST, ["P205 2:9-10 `f` takes 2 arguments, not 1 ~ 1:4-5 defined here"]),
    ("fn f() = 1\nlet x = f(1)\n" + ONE + REST, ["P205 2:9-10 `f` takes 0 arguments, not 1 ~ 1:4-5 defined here"]),
    ("let x = abs(1, 2)\n" + ONE + REST, ["P205 1:9-12 `abs` takes 1 argument, not 2"]),
    ("let x = min()\n" + ONE + REST, ["P205 1:9-12 `min` needs at least one argument"]),
    ("fn f() = 1\nlet x = f + 1\n" + ONE + REST, ["P205 2:9-10 `f` is a function => call it: f(…)"]),
    (ONE + "let x = max\n" + REST, ["P205 3:9-12 `max` is a function => call it: max(…)"]),
    (
        "seq s() { }\n" + ONE + "rank r { F[s] F[s()] }",
        ["P205 4:12-13 `s` is a sequence and has no value", "P205 4:17-18 `s` is a sequence and has no value"],
    ),
    ("let k = 1\n" + ONE + "rank r { F[k(0)] }", ["P205 4:12-13 `k` is not a function"]),
    ("fn f() = 1\n" + ONE + "rank r { f() }", ["P205 4:10-11 `f` is a function; only a `seq` can stand here"]),
    (
        "seq s(n) { F[0:n] }\n" + ONE + "rank r { s() }",
        ["P205 4:10-11 `s` takes 1 argument, not 0 ~ 1:5-6 defined here"],
    ),
    # P206: a chunk that the rank does not have
    (
        TWO + "stages 4\nrank r { for c in 0:3 { F[0]@stage(c) } }",
        ["P206 4:30-38 stage(2) does not exist: rank 0 owns stage(0) to stage(1) for r = 0, c = 2"],
    ),
    (
        TWO + "stages 4\nrank r { F[0]@stage(-1) }",
        ["P206 4:15-24 stage(-1) does not exist: rank 0 owns stage(0) to stage(1) for r = 0"],
    ),
    (
        "ranks 3\nmicrobatches 1\nstages 2\nrank r { OPT@stage(0) }",
        ["P206 4:14-22 stage(0) does not exist: rank 2 owns no stage for r = 2"],
    ),
    (ONE + "let x = stage(0)\n" + REST, ["P206 3:9-17 `stage(c)` has a meaning only inside a rank body"]),
    # P207: a definition that calls itself
    (
        "fn f(k) = g(k)\nfn g(k) = h(k) + f(k - 1)\nfn h(k) = k\n" + ONE + REST,
        ["P207 2:18-19 a definition that calls itself: `f` → `g` → `f` => use a `for` loop"],
    ),
    (
        "fn f(k) = f(k - 1)\n" + ONE + REST,
        ["P207 1:11-12 a definition that calls itself: `f` → `f` => use a `for` loop"],
    ),
    (
        "seq s(n) { F[0] t(n) }\nseq t(n) { if n { s(n - 1) } }\n" + ONE + "rank r { s(1) }",
        ["P207 2:19-20 a definition that calls itself: `s` → `t` → `s` => use a `for` loop"],
    ),
    # P208: the schedule is larger than the limit
    (
        TWO + "rank 0 { for i in 0:1000000000 { F[0] } }\nrank r { F[0] }",
        ["P208 3:19-31 the schedule grows beyond 10,000,000 operations here => raise the limit with `--max-ops`"],
    ),
    (
        ONE + "rank r { F[0:1000000000000] }",
        ["P208 3:12-27 the schedule grows beyond 10,000,000 operations here => raise the limit with `--max-ops`"],
    ),
    # P209: an operation whose stage is not clear
    (
        TWO + "stages 4\nrank r { F[0] }",
        ["P209 4:10-14 which stage? rank 0 owns 0, 2 => name the stage: `@stage(0)` or `@0`; literally, as in `0F0`"],
    ),
    (
        TWO + "stages 4\nrank r: F0 0F0",
        ["P209 4:9-11 which stage? rank 0 owns 0, 2 => name the stage: `@stage(0)` or `@0`; literally, as in `0F0`"],
    ),
    (
        TWO + "stages 4\nrank 0: 0F0 F0\nrank 1:",
        ["P209 4:13-15 which stage? rank 0 owns 0, 2 => name the stage: `@stage(0)` or `@0`; literally, as in `0F0`"],
    ),
    (
        "ranks 2\nmicrobatches 1\nstages 1\nrank r { F[0] }",
        ["P209 4:10-14 rank 1 owns no stage => see the placement, or name one with `@`"],
    ),
    # P210: an operation written in a form its kind does not have
    (ONE + "rank r { F }", ["P210 3:10-11 F runs on a microbatch => write `F[i]` or `F[a:b]`"]),
    (ONE + "rank r { B@0 }", ["P210 3:10-13 B runs on a microbatch => write `B[i]` or `B[a:b]`"]),
    (ONE + "rank r { OPT[0] }", ["P210 3:10-16 OPT concerns a stage, not a microbatch => write `OPT` or `OPT@s`"]),
    (ONE + "rank r { F[0:2] & B[0] }", ["P210 3:10-16 an overlapped slot joins single operations, not ranges of them"]),
    # P211: a size that is missing or not positive
    ("microbatches 2\n" + REST, ["P211 1:1-1 the file does not say its `ranks` => add a line such as `ranks 4`"]),
    ("param m = 2\nranks 1\nmicrobatches m - 2\n" + REST, ["P211 3:14-19 `microbatches` is 0; it must be at least 1"]),
    (
        "ranks -1\nmicrobatches 2\nstages 0\n" + REST,
        ["P211 1:7-9 `ranks` is -1; it must be at least 1", "P211 3:8-9 `stages` is 0; it must be at least 1"],
    ),
    # P213: a placement that does not fit the sizes
    (
        "ranks 2\nmicrobatches 1\nstages 3\nplace vee\nrank r { }",
        ["P213 4:1-10 `vee` folds whole rows of 2 ranks; 3 stages are not a multiple => say `stages 4`"],
    ),
    ("ranks 2\nmicrobatches 1\nstages 3\nplace s on s\nrank r { }", ["P213 4:12-13 rank 2 is outside 0..1 for s = 2"]),
    (
        "ranks 2\nmicrobatches 3\nstages 2\nplace s, i on s + i\nrank r { }",
        ["P213 4:15-20 rank 2 is outside 0..1 for s = 0, i = 2"],
    ),
    # P214: a cycle in the stage graph
    (
        "ranks 3\nmicrobatches 1\nedge 0 -> 1\nedge 1 -> 2\nedge 2 -> 1\nrank r { }",
        ["P214 5:1-12 the stage graph has a cycle: 2 -> 1 -> 2 => remove one of its edges"],
    ),
    # P404: a stage or microbatch that does not exist
    ("ranks 2\nmicrobatches 1\nedge 0 -> 2\nrank r { }", ["P404 3:11-12 stage 2 is outside 0..1"]),
    ("ranks 2\nmicrobatches 1\ntie 0, 5\nrank r { }", ["P404 3:8-9 stage 5 is outside 0..1"]),
    ("ranks 2\nmicrobatches 1\ncost F@2 = 1\nrank r { }", ["P404 3:8-9 stage 2 is outside 0..1"]),
    # P215: a negative cost
    (TWO + "cost F@s = s - 1\n" + REST, ["P215 3:12-17 a cost is at least 0"]),
    # P216: a rule about the parameters does not hold
    (
        'param p = 4\nparam m = 6\nrequire m % p == 0, "m must be a multiple of p"\n' + ONE + REST,
        [
            "P216 3:1-48 m must be a multiple of p (p = 4, m = 6) "
            "=> nearest that satisfy every rule: p = 3 or 6; or m = 4 or 8"
        ],
    ),
    (
        "param p = 4\nlet q = 2 * p\nfn big(x) = x > 10\nrequire big(q)\n" + ONE + REST,
        ["P216 4:1-15 the rule `big(q)` does not hold (p = 4) => nearest that satisfy every rule: p = 6"],
    ),
    ("require 1 == 2\n" + ONE + REST, ["P216 1:1-15 the rule `1 == 2` does not hold"]),
    (
        'param p = 3\nrequire p % 2 == 0, "even"\nrequire p % 5 == 0, "five"\n' + ONE + REST,
        [
            "P216 2:1-27 even (p = 3) => nearest that satisfy every rule: p = 10",
            "P216 3:1-27 five (p = 3) => nearest that satisfy every rule: p = 10",
        ],
    ),
    # P217: a body for a rank that does not exist
    (TWO + "rank 2: F0\n" + REST, ["P217 3:6-7 rank 2 is outside 0..1 => `ranks` says how many there are"]),
    (TWO + "rank 0:5 { }\n" + REST, ["P217 3:6-9 rank 4 is outside 0..1 => `ranks` says how many there are"]),
    (TWO + "rank -1 { }\n" + REST, ["P217 3:6-8 rank -1 is outside 0..1 => `ranks` says how many there are"]),
    # P218: a rank without a body
    (
        TWO + "rank 0: F0\n\n",
        ["P218 3:11-11 no body for rank 1 => `rank r { … }` stands for every rank without a body of its own"],
    ),
    (
        "ranks 12\nmicrobatches 1\nrank 0:2 { }\n",
        [
            "P218 3:13-13 no body for ranks 2, 3, 4, 5, 6, 7, 8, 9, … "
            "=> `rank r { … }` stands for every rank without a body of its own"
        ],
    ),
    # P219: a building block (more in test_expand_blocks.py)
    (TWO + "block 3 { F@s at s }", ["P219 3:1-21 a block needs F and B, or F, I and W"]),
    # P220, P221: a rule (more in test_expand_auto.py)
    (TWO + "auto { I[i]@s }", ["P220 3:1-16 a rule needs F, F and B, or F, I and W"]),
    (
        TWO + "auto { F[i]@s when 0 }",
        [
            "P221 3:20-21 the rule stops at time 0: rank 0 may not start 0F0 => there held = 0, in_flight = 0, "
            "ready = 2, and nothing runs; 4 operations are left"
        ],
    ),
    # Several mistakes are found in one run, in source order; what follows from one is not reported
    (
        'ranks 0\nmicrobatches 1 // 0\nlet x = 1 // 0\nlet y = x + 1\nrequire x, "x"\n' + REST,
        [
            "P211 1:7-8 `ranks` is 0; it must be at least 1",
            "P203 2:14-20 division by zero",
            "P203 3:9-15 division by zero",
        ],
    ),
    (
        ONE + "rank r { F[1 // 0] let x = 1 % 0 F[x] for i in 0:2 { B[i // 0] } OPT[0] }",
        [
            "P203 3:12-18 division by zero for r = 0",
            "P203 3:28-33 division by zero for r = 0",
            "P203 3:56-62 division by zero for r = 0, i = 0",
            "P210 3:66-72 OPT concerns a stage, not a microbatch => write `OPT` or `OPT@s`",
        ],
    ),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_findings(findings, text: str, expected: list[str]) -> None:
    assert findings(text) == expected


def test_every_code_of_names_and_declarations_has_a_case() -> None:
    seen = {finding.split()[0] for _, expected in CASES for finding in expected} | {"P212"}
    assert {code for code in CODES if code.startswith("P2")} <= seen


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"mirco": 3}, ["P212 - the schedule has no parameter `mirco` => did you mean `micro`?"]),
        ({"zzz": 3}, ["P212 - the schedule has no parameter `zzz` => its parameters: micro, k"]),
        ({"j": 3}, ["P212 - the schedule has no parameter `j` => its parameters: micro, k"]),
        ({"micro": 0}, ["P211 4:14-19 `microbatches` is 0; it must be at least 1"]),
        (
            {"zzz": 1, "micro": -1},
            [
                "P212 - the schedule has no parameter `zzz` => its parameters: micro, k",
                "P211 4:14-19 `microbatches` is -1; it must be at least 1",
            ],
        ),
    ],
)
def test_parameters_from_outside(findings, parameters: dict[str, int], expected: list[str]) -> None:
    text = "param micro = 2\nparam k = 1 let j = 1\nranks 1\nmicrobatches micro\n" + REST
    assert findings(text, **parameters) == expected


def test_a_file_without_parameters_says_so(findings) -> None:
    assert findings(ONE + REST, q=3) == ["P212 - the schedule has no parameter `q` => its parameters: none"]


@pytest.mark.parametrize("value", [10**15 + 1, -(10**15) - 1, 2**63, 10**30])
@pytest.mark.parametrize("use", ["F[k]", "for i in 0:min(k, r + 1) { F[i] }", "if k > r { F[0] }", "F[k - k + r]"])
def test_a_parameter_beyond_the_range_of_integers_is_refused_as_such(diagnostics, value: int, use: str) -> None:
    """A number given from outside is held to the same ±10^15 as one in the file."""
    found = diagnostics(f"param k = 1\nranks 2\nmicrobatches 2\nrank r {{ {use} }}", k=value)
    assert [d.code for d in found] == ["P204"]


@pytest.mark.parametrize("text", ["", "# only a comment\n"])
def test_a_file_without_sizes(findings, text: str) -> None:
    assert findings(text) == [
        "P211 1:1-1 the file does not say its `ranks` => add a line such as `ranks 4`",
        "P211 1:1-1 the file does not say its `microbatches` => add a line such as `microbatches 4`",
    ]


def test_a_second_name_is_not_dropped_silently(diagnostics) -> None:
    found = diagnostics('schedule "a"\nschedule "b"\n' + ONE + REST)
    assert [(d.code, d.span.line, d.span.column) for d in found] == [("P202", 2, 1)]


def test_names_of_the_language_are_not_taken_by_loop_variables(findings) -> None:
    expected = ["P202 3:14-19 `stage` is a function of the language => choose another name"]
    assert findings(ONE + "rank r { for stage in 0:2 { F[0] } }") == expected
