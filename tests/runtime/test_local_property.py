"""Any schedule that checks, on any chain of stages: the losses and gradients of one process."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from runtime_models import WIDTH, Bare, Branch, Dense, Frozen, Ignore, Join, Tag, TwoBiases, first_and_last
from runtime_reference import (
    EXACT,
    assert_close_or_zero,
    close,
    operations,
    rows,
    whole_gradients,
    written,
)
from torch import nn

import piper_dsl as piper

KINDS = (Dense, Frozen, Bare, Branch, Tag, Join, Ignore, TwoBiases)


@dataclass(frozen=True)
class Case:
    """A schedule as text, its stages, and how many samples a microbatch has."""

    text: str
    kinds: tuple[type[nn.Module], ...]
    samples: int
    seed: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A schedule of the library with its backwards split, joined, and given a recomputation at random."""
    name = draw(st.sampled_from(["gpipe", "1f1b", "interleaved_1f1b", "zb_h1"]))
    p, m = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    if name == "interleaved_1f1b":
        m = p * draw(st.integers(1, max(1, 4 // p)))
    schedule = piper.load(name, p=p, m=m)
    stages, m = schedule.stages, schedule.microbatches
    lines = [f"ranks {p}", f"microbatches {m}", f"stages {stages}"]
    recomputed = draw(st.sets(st.tuples(st.integers(0, stages - 1), st.integers(0, m - 1))))
    for rank in range(p):
        tokens = _varied(draw, [str(o) for o in schedule.row(rank) if o.kind is not piper.Kind.OPT], recomputed)
        lines.append(f"rank {rank}: {' '.join(tokens)}")
    kinds = tuple(draw(st.sampled_from(KINDS)) for _ in range(stages))
    return Case("\n".join(lines) + "\n", kinds, draw(st.integers(1, 2)), draw(st.integers(0, 99)))


def _varied(draw: st.DrawFn, tokens: list[str], recomputed: set[tuple[int, int]]) -> list[str]:
    """The row with each backward whole (B) or in halves (I, and W now or later), maybe after an R."""
    row: list[str] = []
    later: list[str] = []
    for token in tokens:
        kind = token.lstrip("0123456789")[0]
        stage, microbatch = token.split(kind)
        if kind == "W":
            continue
        if kind in "BI":
            if (int(stage), int(microbatch)) in recomputed:
                row.append(f"{stage}R{microbatch}")
            form = draw(st.sampled_from(["whole", "halves", "late"]))
            row.append(f"{stage}{'B' if form == 'whole' else 'I'}{microbatch}")
            if form == "halves":
                row.append(f"{stage}W{microbatch}")
            elif form == "late":
                later.append(f"{stage}W{microbatch}")
        else:
            row.append(token)
        while later and draw(st.booleans()):
            row.append(later.pop(draw(st.integers(0, len(later) - 1))))
    return row + draw(st.permutations(later))


@given(cases())
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_schedule_gives_what_one_process_gives(case: Case) -> None:
    note(case.text)
    schedule = written(case.text)
    assert piper.check(schedule) == ()
    torch.manual_seed(case.seed)
    stages = [kind().double() for kind in case.kinds]
    inputs, targets = torch.randn(2, schedule.microbatches * case.samples, WIDTH, dtype=torch.float64).unbind()
    if not any(p.requires_grad for stage in stages for p in stage.parameters()):
        stages[-1] = Dense().double()
    losses, gradients = whole_gradients(stages, first_and_last, [(inputs, targets)])
    with piper.Pipeline(copy.deepcopy(stages), schedule, loss_fn=first_and_last) as pipeline:
        assert pipeline.step(inputs, targets) == close(losses[0], EXACT)
        assert_close_or_zero(pipeline.gradients(), gradients, EXACT)
        assert operations(pipeline) == rows(schedule)
        assert pipeline.held() == [0] * schedule.ranks
