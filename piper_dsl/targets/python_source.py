"""The Ray DAG of a program as a script: the binds spelled out, the way one would write them by hand."""

from __future__ import annotations

from collections.abc import Iterator

from ..lower.binds import ENDING, Bind, BindPlan, loaded
from ..lower.program import Program

__all__ = ["bind_lines", "python_source"]

_SCRIPT = '''"""{name}: {ranks} ranks, {stages} stages, {microbatches} microbatches, as a Ray DAG.

Written by `piper-dsl compile --target python`. One actor a rank, one bind an operation, in an order that
respects every dependency. To train a model of your own, change `stages`, `batches` and `loss` below.
"""

import copy

import numpy as np
import ray
from ray.dag import InputNode, MultiOutputNode
from torch.distributed import TCPStore

from piper_dsl.demo.gpt import next_byte_loss as loss
from piper_dsl.demo.gpt import stages
from piper_dsl.demo.text import batches
from piper_dsl.ir import Placement, StageGraph
from piper_dsl.runtime.batch import split_batch
from piper_dsl.runtime.spec import RankSpec
from piper_dsl.targets.groups import WirePlan
from piper_dsl.targets.rank_actor import RankActor

STEPS = 10
MICROBATCHES = {microbatches}
PLACEMENT = Placement.by_stage(np.array({owners}), {ranks}, MICROBATCHES)  # the rank of every stage
GRAPH = StageGraph({stages}, {edges})


def optimizer(parameters):
    import torch

    return torch.optim.AdamW(parameters, 3e-3)


def build_graph({actors}):
    """Every line is one call on an actor: it takes the stage, the microbatch, the stages on other ranks that
    read its results, one each, whether the microbatch is done with, and what arrives: messages of other ranks,
    or a token that only orders it. The last lines end a step: if no rank failed, optimizers step."""
    with InputNode() as batch:
{binds}
    return MultiOutputNode([{finished}])


def main():
    model = stages({stages})
    ray.init(address="local", num_cpus={ranks}, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        ranks = [
            RankActor.remote(
                RankSpec(
                    rank=rank,
                    graph=GRAPH,
                    placement=PLACEMENT,
                    modules={{stage: model[stage] for stage in PLACEMENT.owned[rank]}},
                    trained={trained},
                    recomputed=frozenset({recomputed}),
                    steps=True,
                    loss_fn=loss,
                    optimizer=optimizer,
                    scale=1 / MICROBATCHES,
                )
            )
            for rank in range({ranks})
        ]
        # Where the ranks find each other, to tell at the end of a step whether they failed.
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        plan = WirePlan("127.0.0.1", store.port, {ranks}, "cpu", pairs=(), summing=())
        ray.get([rank.join.remote(plan) for rank in ranks])
        graph = build_graph(*ranks).experimental_compile(_max_inflight_executions=1)
        for step, (inputs, targets) in zip(range(STEPS), batches(4 * MICROBATCHES)):
            batch = split_batch(step, inputs, targets, MICROBATCHES, GRAPH, PLACEMENT)
            # What get() returns are views on Ray's channels, which wait until nobody holds them: copied.
            reports = [copy.deepcopy(result.get(timeout=600)) for result in graph.execute(*batch)]
            for failure in reports:
                if isinstance(failure, Exception):
                    raise SystemExit(str(failure))
            losses = [loss for report in reports for loss in report.losses.values()]
            print(f"step {{step + 1}}: loss {{sum(losses) / len(losses):.4f}}", flush=True)
        graph.teardown()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
'''


def bind_lines(plan: BindPlan) -> list[str]:
    """One line a bind: ``f0_s1 = rank1.forward.bind(1, 0, (2,), False, f0_s0)``."""
    ranks = range(len(plan.unread))
    lines = [f"{loaded(rank)} = rank{rank}.load.bind(batch[{rank}])" for rank in ranks]
    return lines + [_line(bind) for bind in plan.binds] + list(_ending(plan))


def _line(bind: Bind) -> str:
    arguments = ", ".join([*map(str, bind.constants), *bind.sources])
    several = f".options(num_returns={len(bind.results)})" if len(bind.results) > 1 else ""
    return f"{', '.join(bind.results)} = rank{bind.rank}.{bind.method}{several}.bind({arguments})"


def _ending(plan: BindPlan) -> Iterator[str]:
    for rank, names in enumerate(plan.unread):
        yield f"{ENDING}{rank} = rank{rank}.{ENDING}.bind({', '.join(names)})"


def python_source(program: Program, plan: BindPlan) -> str:
    """A script that builds the graph of ``plan`` bind by bind and trains the demo's GPT with it."""
    from ..ir.operations import BACKWARD, Kind

    operations = {bind.operation for bind in plan.binds}
    return _SCRIPT.format(
        name=program.name.replace("\\", "\\\\").replace('"', '\\"'),
        ranks=program.ranks,
        stages=program.stages,
        microbatches=program.microbatches,
        owners=tuple(program.placement(stage) for stage in range(program.stages)),
        edges=program.graph.edges,
        actors=", ".join(f"rank{rank}" for rank in range(program.ranks)),
        binds="\n".join(f"        {line}" for line in bind_lines(plan)),
        finished=", ".join(f"{ENDING}{rank}" for rank in range(program.ranks)),
        trained=any(operation.kind in BACKWARD for operation in operations),
        recomputed=sorted((o.stage, o.microbatch) for o in operations if o.kind is Kind.R),
    )
