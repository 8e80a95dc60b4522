"""Runs to the end of a schedule: what a method reaches of dense training, and the extra steps to it, by horizon."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from experiments.common.claims.grouped import grouped
from ssfx.core.rows import Row
from ssfx.lab.calibration.long_runs import at_dense_rate, best_so_far, is_dense, method, steps_to
from ssfx.lab.workloads.metrics.tally import better

EXPERIMENT = "horizon"
METHODS = {
    "ddp_quantized/qsgd(bits=4,bucket=48,norm=max)": ("four bits", "#4292c6"),
    "per_tensor/ef_signsgd": ("signs", "#9e9ac8"),
    "powersgd/powersgd(rank=32)": ("rank 32", "#238b45"),
    "powersgd": ("rank 4", "#74c476"),
    "per_tensor/topk@0.1": ("top-k, 10 %", "#fdae6b"),
    "per_tensor/topk@0.01": ("top-k, 1 %", "#e6550d"),
    "per_tensor/dgc@0.01": ("DGC, 1 %, with its warm-up", "#a63603"),
}
"""By how the name of `long_runs.method` begins: words and colour; a longer name of the same begin has its own line."""
EARLY, LATE = 0.2, 0.5
"""Shares of the steps of dense training that are a horizon: 2,000 of 10,000, as long_quality trains, and 5,000."""


@dataclass(frozen=True)
class Run:
    """One run of a method beside the dense run of its seed.

    best: quality reached in all. dense: that of the dense run. levels: steps of dense training to each quality that it
    reached for the first time, and steps of the method to it, None where it never came there.
    """

    row: Row
    best: float
    dense: float
    levels: Sequence[tuple[float, float | None]]

    @property
    def behind(self) -> float:
        """How much worse it ends, over the quality of dense training; below 0 where it ends better."""
        worse = self.best / self.dense - 1
        return worse if better(str(self.row.case.target_metric), 0, 1) else 0.0 - worse

    def extra(self, share: float) -> float | None:
        """Extra steps, as a share, to the best of dense training's first `share` of steps; None: never reached."""
        at, there = max(level for level in self.levels if level[0] <= share * self.row.case.steps)
        return None if there is None else there / at - 1


def runs_of(rows: Sequence[Row]) -> dict[str, dict[str, list[Run]]]:
    """Return the runs of each task by method, dense training among them; only where a dense run has their seed.

    A task trained over several numbers of steps is several tasks.
    """
    found: dict[str, dict[str, list[Run]]] = {}
    lengths = grouped((row for row in rows if row.curve), lambda row: (row.case.model, row.case.steps))
    for (model, steps), every in sorted(lengths.items()):
        own, shortest = at_dense_rate(every), min(length for name, length in lengths if name == model)
        task = f"{model}, {steps:,} steps" if steps > shortest else model
        dense = {row.case.seed: row for row in own if is_dense(row)}
        for name, words in [("", "dense"), *((name, words) for name, (words, _) in METHODS.items())]:
            some = [row for row in own if row.case.seed in dense and name == _known(row)]
            if some:
                found.setdefault(task, {})[words] = [_run(dense[row.case.seed], row) for row in some]
    return found


def _known(row: Row) -> str | None:
    """Return the key of METHODS for a row, "" for dense training, None for another method."""
    if is_dense(row):
        return ""
    return max((name for name in METHODS if method(row).startswith(name)), key=len, default=None)


def _run(dense: Row, row: Row) -> Run:
    metric = str(dense.case.target_metric)
    path, levels = best_so_far(row, metric), best_so_far(dense, metric)
    there = [(step, steps_to(path, level, metric)) for step, level in levels]
    return Run(row, path[-1][1], levels[-1][1], there)


def beside_dense(runs: Sequence[Run]) -> tuple[str, str, str]:
    """Return in words how much worse runs end, and their extra steps early and late: medians."""
    return f"{median(run.behind for run in runs):+.1%}", _extra(runs, EARLY), _extra(runs, LATE)


def _extra(runs: Sequence[Run], share: float) -> str:
    found = [run.extra(share) for run in runs]
    known = [one for one in found if one is not None]
    return f"{median(known):+.0%}" if 2 * len(known) > len(found) else "never"
