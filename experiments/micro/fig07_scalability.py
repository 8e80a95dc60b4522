"""MiCRO Fig. 7: accuracy of MiCRO on several numbers of workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.gaps import LONG, longest
from experiments.common.evaluation.judging import absent, complete
from experiments.common.evaluation.micro_runs import method
from experiments.common.evaluation.quality_curves import compared, draw_curves, grouped, judged_order, quality, values
from ssfx.core.rows import Row

NAME = "micro.fig7"
TITLE = "Accuracy of MiCRO by number of workers"
CLAIMS = (NAME,)
NEEDS = {"experiment": ("micro_quality", LONG).__contains__, "calibration": ""}
COMMAND = "ssfx run experiment=micro_quality"

COLOURS = {"2 workers": "#c6b2dd", "4 workers": "#9a6fc4", "8 workers": "#5b2a86"}


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write accuracy over steps with the range of the seeds, a line for each number of workers."""
    return draw_curves(NAME, shown(rows), COLOURS, quality, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return whether all numbers of workers end alike."""
    found = [absent("micro.fig7.speed", "time to accuracy on the paper's GPUs; our workers share two cores")]
    for methods in shown(rows).values():
        own = {name: values(runs, "top1") for name, runs in methods.items()}
        names = sorted(own)
        if len(names) > 1:
            first = names[0]
            pairs = [(f"{name} over {first}", *compared(own[name], own[first]), "equal") for name in names[1:]]
            found.append(judged_order("micro.fig7.accuracy", pairs))
            break
    return complete(NAME, found, COMMAND, cost="minutes on two cores")


def shown(rows: list[Row]) -> dict[str, dict[str, list[Row]]]:
    """Return model -> number of workers -> rows of MiCRO."""
    return grouped(longest(rows, workers, set(COLOURS)), workers)


def workers(row: Row) -> str:
    """Return the number of workers of a run of MiCRO, in words, "" for other runs."""
    return f"{row.case.world_size} workers" if method(row) == "MiCRO" else ""
