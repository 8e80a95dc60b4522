"""MergeComp Algorithm 1: one call of the compressor and one collective for each group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete
from experiments.common.figures.tables import draw_table
from experiments.common.validation.published_mergecomp import Setup, timed
from experiments.common.validation.published_steps import Simulations
from ssfx.core.rows import Row
from ssfx.planning.plan import Plan
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import make_plan

NAME = "mergecomp.alg1"
TITLE = "Groups that MergeComp makes of ResNet50"
COMMAND = f"ssfx figures {NAME}"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write one line for every group of the plan."""
    made = plan()
    table = [
        {
            "group": number + 1,
            "tensors": len(lane.tensors),
            "elements": made.numel(lane),
            "calls": len(lane.segments),
            "collective": lane.collective,
            "last": lane.tensors[-1],
        }
        for number, (_, lane) in enumerate(made.lanes())
    ]
    columns = {
        "group": "group", "tensors": "tensors", "elements": "elements", "calls": "compressor\ncalls",
        "collective": "collective", "last": "ends behind",
    }  # fmt: skip
    return draw_table(
        NAME,
        TITLE,
        columns,
        table,
        out,
        origin="The plan of scheme mergecomp by nominal times: DGC at density 0.01, 8 GPUs over PCIe.",
    )


def plan() -> Plan:
    """Return the plan of the scheme."""
    how, at = timed("Y=2", "dgc", Setup("ResNet50", "CIFAR10", 8))
    options = dict(how.options)
    target = Simulations("nominal").target(at)
    chosen = schemes[how.scheme].online(options)
    costs = target.system.planning_costs(chosen.compressor, chosen.density)
    return make_plan(how.scheme, target.profile, costs, options)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return nothing: the ledger has no claim of this algorithm."""
    return complete(NAME, [], COMMAND)


def finding(rows: list[Row]) -> str:
    """Return how many groups there are."""
    lanes = list(plan().lanes())
    return f"{len(lanes)} groups, each compressed by {len(lanes[0][1].segments)} call and sent by one collective"
