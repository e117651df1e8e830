"""Schedules that check, and chains of stages for them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from runtime_models import Bare, Branch, Dense, Frozen, Ignore, Join, Tag, TwoBiases
from torch import nn

import piper_dsl as piper

REDUCED = """
ranks 2
stages 4
microbatches 2
rank 0: 0F0 0F1 2F0 2F1 2B0 2B1 2REDUCE_GRAD 0B0 0B1 0REDUCE_GRAD 0OPT 2OPT
rank 1: 1F0 1F1 3F0 3F1 3B0 3B1 3REDUCE_GRAD 1B0 1B1 1OPT 3OPT
"""
"""Stages 2 and 3 are reduced before stages 0 and 1 have run a backward; stage 1 is not told when."""

KINDS = (Dense, Frozen, Bare, Branch, Tag, Join, Ignore, TwoBiases)


@dataclass(frozen=True)
class Case:
    """A schedule as text, its stages, and how many samples a microbatch has."""

    text: str
    kinds: tuple[type[nn.Module], ...]
    samples: int
    seed: int

    def stages(self) -> list[nn.Module]:
        """The stages, of which one at least is trained; what is drawn next follows from the seed too."""
        torch.manual_seed(self.seed)
        stages = [kind().double() for kind in self.kinds]
        if not any(p.requires_grad for stage in stages for p in stage.parameters()):
            stages[-1] = Dense().double()
        return stages


@st.composite
def cases(draw: st.DrawFn, most_ranks: int = 3) -> Case:
    """A schedule of the library with its backwards split, joined, and given a recomputation at random."""
    name = draw(st.sampled_from(["gpipe", "1f1b", "interleaved_1f1b", "zb_h1"]))
    p, m = draw(st.integers(1, most_ranks)), draw(st.integers(1, 4))
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


@st.composite
def stepped_cases(draw: st.DrawFn, most_ranks: int = 3) -> Case:
    """The same with optimizer steps, and with reductions of some stages somewhere behind their last backward."""
    case = draw(cases(most_ranks))
    lines = case.text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("rank "):
            head, _, row = line.partition(":")
            lines[number] = f"{head}: {' '.join(_with_steps(draw, row.split()))}"
    return replace(case, text="\n".join(lines) + "\n")


def _with_steps(draw: st.DrawFn, row: list[str]) -> list[str]:
    """A row in which every stage is stepped, behind its backwards and, where it has one, its reduction."""
    for stage in sorted({re.match(r"\d+", token)[0] for token in row}):
        kinds = ["REDUCE_GRAD", "OPT"] if draw(st.booleans()) else ["OPT"]
        least = max(place for place, token in enumerate(row) if re.fullmatch(rf"{stage}[BW]\d+", token)) + 1
        for kind in kinds:
            least = draw(st.integers(least, len(row)))
            row = [*row[:least], f"{stage}{kind}", *row[least:]]
            least += 1
    return row
