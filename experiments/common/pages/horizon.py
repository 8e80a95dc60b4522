"""The generated table of docs/workloads.md of runs to the end of a schedule."""

from collections.abc import Sequence
from statistics import median

from experiments.common.evaluation.horizon import EXPERIMENT, beside_dense, runs_of
from experiments.common.pages.markdown import none_yet, table
from ssfx.core.rows import Row

HEADS = ("task", "method", "runs", "best quality", "worse than dense", "extra steps, early", "extra steps, late")


def horizon_block(rows: Sequence[Row]) -> str:
    """Return a line for each task and method; that of dense training has the range of its seeds, not a gap."""
    lines = []
    for task, runs in runs_of([row for row in rows if row.case.experiment == EXPERIMENT]).items():
        for words, some in runs.items():
            ends = [run.best for run in some]
            gap = beside_dense(some) if words != "dense" else (f"{min(ends):.3g} to {max(ends):.3g}", "-", "-")
            lines.append((task, words, str(len(some)), f"{median(ends):.3g}", *gap))
    return table(HEADS, lines) if lines else none_yet("ssfx run experiment=horizon engine=virtual data.root=DIR")
