"""Is everything there, once, where the placement says? Counted per (stage, microbatch)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ..diagnostics import Diagnostic, Related, Span
from ..ir.operations import BACKWARD, COMPUTE, PER_MICROBATCH, Kind
from ..ir.schedule import Schedule

__all__ = ["check_complete"]

_MAX_PLACES = 100


def check_complete(schedule: Schedule) -> list[Diagnostic]:
    """Findings P401 to P407; empty for a complete schedule."""
    return _Complete(schedule).run()


class _Complete:
    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        stage_ok = (schedule.stage >= 0) & (schedule.stage < schedule.stages)
        per_microbatch = np.isin(schedule.kind, PER_MICROBATCH)
        microbatch_ok = (schedule.microbatch >= 0) & (schedule.microbatch < schedule.microbatches)
        self._stage_ok = stage_ok
        self._in_range = stage_ok & (microbatch_ok | ~per_microbatch)
        self._per_microbatch = per_microbatch
        self._count = {kind: self._counts(kind) for kind in COMPUTE}

    def run(self) -> list[Diagnostic]:
        findings = [*self._out_of_range(), *self._repeated(), *self._misplaced(), *self._forwards()]
        if any(self._count[kind].any() for kind in BACKWARD):
            findings += [*self._backwards(), *self._recomputes()]
        return [*findings, *self._optimizer(), *self._sharding()]

    def _counts(self, kind: Kind) -> np.ndarray:
        """How often every (stage, microbatch) has a kind."""
        schedule = self._schedule
        chosen = self._in_range & (schedule.kind == kind)
        key = schedule.stage[chosen].astype(np.int64) * schedule.microbatches + schedule.microbatch[chosen]
        size = schedule.stages * schedule.microbatches
        return np.bincount(key, minlength=size).reshape(schedule.stages, schedule.microbatches)

    def _by_site(self, marked: np.ndarray) -> Iterator[tuple[int, int]]:
        """The first marked operation of every place in the source, and how many more there are like it.

        Beyond :data:`_MAX_PLACES` the last one stands for all the others.
        """
        indices = np.flatnonzero(marked)
        _, first, count = np.unique(self._schedule.origin.site[indices], return_index=True, return_counts=True)
        more = count - 1
        if len(first) > _MAX_PLACES:
            more[_MAX_PLACES - 1] += count[_MAX_PLACES:].sum()
        yield from zip(indices[first[:_MAX_PLACES]].tolist(), more[:_MAX_PLACES].tolist(), strict=True)

    def _at(
        self, code: str, index: int, more: int, message: str, help: str | None = None, *related: Related
    ) -> Diagnostic:
        place = self._schedule.where(index)
        others = f" (and {more} more like it)" if more else ""
        return Diagnostic(code, message + place + others, self._schedule.origin.span(index), help, related=related)

    # --- the findings ------------------------------------------------------------------------

    def _out_of_range(self) -> Iterator[Diagnostic]:
        schedule = self._schedule
        for index, more in self._by_site(~self._stage_ok):
            stage = schedule.stage[index]
            yield self._at("P404", index, more, f"stage {stage} is outside 0..{schedule.stages - 1}")
        for index, more in self._by_site(self._stage_ok & ~self._in_range):
            microbatch = schedule.microbatch[index]
            message = f"microbatch {microbatch} is outside 0..{schedule.microbatches - 1}"
            yield self._at("P404", index, more, message)

    def _repeated(self) -> Iterator[Diagnostic]:
        schedule = self._schedule
        among = self._in_range
        if all(count.max(initial=0) <= 1 for count in self._count.values()):
            # Sorting is for what is left, which is little: no compute is there twice.
            among = among & ~np.isin(schedule.kind, COMPUTE)
        indices = np.flatnonzero(among)
        rank = np.where(self._per_microbatch[indices], 0, schedule.rank[indices])
        # UNSHARD and RESHARD come in pairs, as often as wanted: `_sharding` looks at them.
        indices_of_pairs = np.isin(schedule.kind[indices], (Kind.UNSHARD, Kind.RESHARD))
        indices, rank = indices[~indices_of_pairs], rank[~indices_of_pairs]
        keys = (schedule.microbatch[indices], schedule.stage[indices], schedule.kind[indices], rank)
        order = np.lexsort((indices, *keys))
        same = np.ones(max(0, len(order) - 1), dtype=bool)
        for key in keys:
            same &= np.diff(key[order]) == 0
        first = np.maximum.accumulate(np.where(np.concatenate([[True], ~same]), np.arange(len(order)), 0))
        again = np.flatnonzero(same) + 1
        original = np.full(len(schedule), -1)
        original[indices[order[again]]] = indices[order[first[again]]]
        for index, more in self._by_site(original >= 0):
            other = Related("the first one", schedule.origin.span(int(original[index])))
            yield self._at(
                "P402", index, more, f"{schedule.operation(index)} occurs twice", "remove one of the two", other
            )

    def _misplaced(self) -> Iterator[Diagnostic]:
        schedule = self._schedule
        indices = np.flatnonzero(self._in_range & self._per_microbatch)
        owner = np.full(len(schedule), -1)
        owner[indices] = schedule.placement.rank_of[schedule.stage[indices], schedule.microbatch[indices]]
        wrong = self._in_range & self._per_microbatch & (owner != schedule.rank)
        fits = self._fitting_placement()
        for index, more in self._by_site(wrong):
            stage, rank = schedule.stage[index], schedule.rank[index]
            message = f"{schedule.operation(index)}: stage {stage} is placed on rank {owner[index]}"
            yield self._at("P403", index, more, f"{message} but scheduled on rank {rank}", fits)
        for index in np.flatnonzero(self._in_range & ~self._per_microbatch).tolist():
            copies, rank = schedule.placement.copies[schedule.stage[index]], int(schedule.rank[index])
            if rank not in copies:
                ranks = " and ".join(f"rank {copy}" for copy in copies)
                message = f"{schedule.operation(index)}: stage {schedule.stage[index]} is placed on {ranks}"
                yield self._at("P403", index, 0, f"{message} but scheduled on rank {rank}", fits)

    def _fitting_placement(self) -> str | None:
        """A help line with a named placement that all rows agree with, if there is one."""
        from ..ir.placement import loop_ranks, vee_ranks

        schedule, chosen = self._schedule, self._stage_ok
        for name, rule in (("loop", loop_ranks), ("vee", vee_ranks)):
            if np.array_equal(rule(schedule.stages, schedule.ranks)[schedule.stage[chosen]], schedule.rank[chosen]):
                return f"the rows fit `place {name}`"
        return None

    def _missing(self, missing: np.ndarray, what: str, present: Iterable[Kind], help: str) -> Iterator[Diagnostic]:
        """One finding a stage, at the first operation that shows something is missing."""
        schedule = self._schedule
        for stage in np.flatnonzero(missing.any(axis=1)).tolist():
            microbatches = np.flatnonzero(missing[stage]).tolist()
            index = self._first_of(stage, microbatches[0], present)
            plural = "" if len(microbatches) == 1 else "es"
            message = f"stage {stage} has no {what} for microbatch{plural} {_listed(microbatches)}"
            span = self._rank_end(stage, microbatches[0]) if index is None else schedule.origin.span(index)
            where = "" if index is None else schedule.where(index)
            yield Diagnostic("P401", message, span, help, label=f"this one{where}" if where else "")

    def _first_of(self, stage: int, microbatch: int, kinds: Iterable[Kind]) -> int | None:
        schedule = self._schedule
        found = np.flatnonzero(
            (schedule.stage == stage) & (schedule.microbatch == microbatch) & np.isin(schedule.kind, list(kinds))
        )
        return int(found[0]) if len(found) else None

    def _rank_end(self, stage: int, microbatch: int) -> Span:
        """The last operation of the rank that should have run something; the start of the file for an empty rank."""
        schedule = self._schedule
        rank = schedule.placement(stage, microbatch)
        start, end = schedule.offsets[rank], schedule.offsets[rank + 1]
        return schedule.origin.span(int(end) - 1) if end > start else Span(schedule.origin.source, 0, 0)

    def _forwards(self) -> Iterator[Diagnostic]:
        help_ = "every stage runs every microbatch forward once"
        yield from self._missing(self._count[Kind.F] == 0, "forward (F)", BACKWARD, help_)

    def _backwards(self) -> Iterator[Diagnostic]:
        whole, halves = self._count[Kind.B] > 0, (self._count[Kind.I] > 0) | (self._count[Kind.W] > 0)
        half = np.flatnonzero(self._in_range & np.isin(self._schedule.kind, (Kind.I, Kind.W)))
        twice = np.zeros(len(self._schedule), dtype=bool)
        key = (
            self._schedule.stage[half].astype(np.int64) * self._schedule.microbatches + self._schedule.microbatch[half]
        )
        half = half[np.unique(key, return_index=True)[1]]
        twice[half] = whole[self._schedule.stage[half], self._schedule.microbatch[half]]
        for index, more in self._by_site(twice):
            stage, microbatch = int(self._schedule.stage[index]), int(self._schedule.microbatch[index])
            other = self._first_of(stage, microbatch, (Kind.B,))
            assert other is not None
            message = f"microbatch {microbatch} has two backwards on stage {stage}: a whole B and an I or W"
            related = Related("the whole backward", self._schedule.origin.span(other))
            yield self._at("P405", index, more, message, "keep B, or I and W", related)
        none, compute = ~whole & ~halves, (Kind.F,)
        yield from self._missing(none, "backward (B, or I and W)", compute, "add a B, or an I and a W")
        split = ~whole & halves
        no_weight = split & (self._count[Kind.W] == 0)
        yield from self._missing(
            no_weight, "weight gradient (W)", (Kind.I,), "without its W, the weight gradient of an I is missing"
        )
        yield from self._missing(
            split & (self._count[Kind.I] == 0), "input gradient (I)", (Kind.W,), "a W follows its I"
        )

    def _recomputes(self) -> Iterator[Diagnostic]:
        alone = (self._count[Kind.R] > 0) & (self._count[Kind.B] + self._count[Kind.I] == 0)
        for stage, microbatch in np.argwhere(alone).tolist():
            index = self._first_of(stage, microbatch, (Kind.R,))
            assert index is not None
            yield self._at("P401", index, 0, f"{self._schedule.operation(index)} has no backward to recompute for")

    def _optimizer(self) -> Iterator[Diagnostic]:
        schedule = self._schedule
        steps = np.flatnonzero((schedule.kind == Kind.OPT) & self._in_range)
        if not len(steps):
            return
        if not any(self._count[kind].any() for kind in BACKWARD):
            yield self._at("P406", int(steps[0]), len(steps) - 1, "an optimizer step in a schedule without a backward")
            return
        stepped = set(zip(schedule.stage[steps].tolist(), schedule.rank[steps].tolist(), strict=True))
        wanted = {(stage, rank) for stage, ranks in enumerate(schedule.placement.copies) for rank in ranks}
        for stage, rank in sorted(wanted - stepped):
            message = f"stage {stage} is never stepped on rank {rank}, while other stages are"
            span = self._rank_end(stage, int(np.argmax(schedule.placement.rank_of[stage] == rank)))
            yield Diagnostic("P406", message, span, f"add `OPT@{stage}` to rank {rank}, or remove every OPT")

    def _sharding(self) -> Iterator[Diagnostic]:
        """UNSHARD opens, RESHARD closes; where a stage has any, its compute lies between them."""
        schedule = self._schedule
        marks = np.isin(schedule.kind, (Kind.UNSHARD, Kind.RESHARD)) & self._in_range
        if not marks.any():
            return
        sharded = set(zip(schedule.rank[marks].tolist(), schedule.stage[marks].tolist(), strict=True))
        gathered: set[tuple[int, int]] = set()
        wrong: dict[str, np.ndarray] = {}
        for index in np.flatnonzero(self._in_range & (marks | np.isin(schedule.kind, COMPUTE))).tolist():
            key = (int(schedule.rank[index]), int(schedule.stage[index]))
            if key in sharded and (problem := _sharding_step(schedule.kind[index], key, gathered)):
                wrong.setdefault(problem, np.zeros(len(schedule), dtype=bool))[index] = True
        for problem, marked in wrong.items():
            for index, more in self._by_site(marked):
                message = f"{schedule.operation(index)}: stage {schedule.stage[index]} {problem}"
                yield self._at("P407", index, more, message)


def _sharding_step(kind: int, key: tuple[int, int], gathered: set[tuple[int, int]]) -> str | None:
    """Follows one operation on a rank and stage; what is wrong with it, if anything."""
    was_gathered = key in gathered
    if kind == Kind.UNSHARD:
        gathered.add(key)
        return "is gathered twice without a RESHARD in between" if was_gathered else None
    if kind == Kind.RESHARD:
        gathered.discard(key)
        return None if was_gathered else "is dropped without an UNSHARD before"
    return None if was_gathered else "computes while its parameters are not gathered"


def _listed(numbers: list[int]) -> str:
    """Numbers for a reader: `2, 5 and 7`, shortened beyond eight."""
    if len(numbers) > 8:
        return f"{', '.join(map(str, numbers[:8]))} and {len(numbers) - 8} more"
    return str(numbers[0]) if len(numbers) == 1 else f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
