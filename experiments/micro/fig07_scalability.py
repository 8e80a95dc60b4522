"""MiCRO Fig. 7: accuracy of MiCRO on several numbers of workers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.gaps import COMMAND as LONG_COMMAND
from experiments.common.evaluation.gaps import COST, LONG, Gap, Wanted, judged_order, no_row, tasks
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.micro_runs import DENSITY, judged_times, method, steps_to_common
from experiments.common.evaluation.micro_steps import timed
from experiments.common.evaluation.quality_panels import Panel, draw_quality
from experiments.common.evaluation.row_steps import NoRow, by_calibration
from ssfx.core.rows import Row

NAME = "micro.fig7"
TITLE = "Accuracy of MiCRO by number of workers"
CLAIMS = (NAME,)
NEEDS = {"experiment": (LONG, "micro_clusters").__contains__}
COMMAND = LONG_COMMAND

WORKERS = {2: "2 workers", 4: "4 workers", 8: "8 workers"}
COLOURS = {"2 workers": "#c6b2dd", "4 workers": "#9a6fc4", "8 workers": "#5b2a86"}
TIMED = "resnet18_cifar10"
"""The paper's network whose step was simulated on each number of workers."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write accuracy over steps, and at the end over that of the fewest workers."""
    found = tasks([row for row in rows if row.case.experiment == LONG], workers)
    return draw_quality(NAME, TITLE, [Panel(one.model, one, COLOURS, "2 workers") for one in found[:1]], out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return whether all numbers of workers end alike, and whether more of them are there sooner by simulated steps."""
    found: list[Verdict] = []
    every = tasks([row for row in rows if row.case.experiment == LONG], workers)
    task = every[0] if every else None
    missing = [name for name in COLOURS if not task or name not in task.methods]
    if task is None or missing:
        found = [no_row(f"{NAME}.{claim}", [f"MiCRO on {name}" for name in missing]) for claim in ("accuracy", "speed")]
        return complete(NAME, found, COMMAND, cost=COST)
    first = next(iter(COLOURS))
    pairs: list[tuple[str, Gap, Wanted]] = [
        (f"{name} over {first}", task.gap(name, first), "equal") for name in COLOURS if name != first
    ]
    found.append(judged_order(f"{NAME}.accuracy", pairs, task.words))
    counts = steps_to_common(task.methods)
    for calibration, steps in by_calibration(rows).items():
        try:
            step_s = {
                name: steps.step(*timed("micro", TIMED, DENSITY, number)).iteration_s
                for number, name in WORKERS.items()
            }
        except NoRow:
            continue
        times = {name: [count * step_s[name] for count in counts[name]] for name in COLOURS}
        ordered = [(times[more], times[fewer]) for fewer, more in pairwise(COLOURS)]
        found.append(judged_times(f"{NAME}.speed", ordered, calibration))
    return complete(NAME, found, COMMAND, cost=COST)


def workers(row: Row) -> str:
    """Return the number of workers of a long run of MiCRO, in words, "" for other runs."""
    return WORKERS.get(row.case.world_size, "") if method(row) == "MiCRO" else ""
